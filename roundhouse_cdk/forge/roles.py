"""The roles of GitHub's workflows: for each who may take it, for how long, and what it may do.

Sources: IAM user guide, "Available keys for AWS OIDC federation"; GitHub docs, "OpenID Connect
reference". Repositories made since 2026-07-15 have the numbers in their tokens' subject.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from onboarding import names
from onboarding.aws_limits import GITHUB_ISSUER, SESSION_SECONDS
from onboarding.environment_spec import EnvironmentSpec, GithubSpec
from roundhouse_cdk.forge.reads import drift_statements, plan_statements
from roundhouse_cdk.forge.statements import (
    build_statements,
    deploy_statements,
    gate_statements,
    promote_statements,
)
from roundhouse_cdk.statements import Statement, role_properties

AUDIENCE = "sts.amazonaws.com"
MAIN = "refs/heads/main"
PULL_REQUEST, MAIN_BRANCH = "pull_request", f"ref:{MAIN}"


@dataclass(frozen=True, kw_only=True)
class WorkflowRole:
    """One role: the last part of its name, its trust, its statements, and its longest session."""

    name: names.Purpose
    trust: tuple[Statement, ...]
    statements: tuple[Statement, ...]
    seconds: int = SESSION_SECONDS.least

    def properties(self, environment: EnvironmentSpec) -> dict[str, Any]:
        """Return the properties of its `AWS::IAM::Role`."""
        return {
            "RoleName": names.pipeline_role(environment, self.name),
            "MaxSessionDuration": self.seconds,
            **role_properties(environment, self.trust, self.statements),
        }


def workflow_roles(
    environment: EnvironmentSpec,
    github: GithubSpec,
    provider: str | dict[str, Any],
    *,
    qualifier: str,
    source: EnvironmentSpec | None = None,
    receivers: Sequence[EnvironmentSpec] = (),
) -> Iterator[WorkflowRole]:
    """Yield an environment's roles.

    `provider` is GitHub's OIDC provider, `qualifier` that of `cdk bootstrap`; `source` is the
    environment that this one promotes from, `receivers` are those that promote from it.
    """
    approvals = f"environment:{names.approval_environment(environment)}"
    builds = f"environment:{names.approval_environment(environment, builds=True)}"
    seconds = environment.session_seconds
    plan = trust_statement(github, provider, PULL_REQUEST)
    drift = trust_statement(github, provider, MAIN_BRANCH, from_main=True)
    build = trust_statement(github, provider, builds, run_workflow=True)
    deploy = trust_statement(github, provider, approvals, run_workflow=True, from_main=True)
    yield WorkflowRole(name="plan", trust=(plan,), statements=plan_statements(environment))
    yield WorkflowRole(name="drift", trust=(drift,), statements=drift_statements(environment))
    yield WorkflowRole(
        name="build", trust=(build,), statements=build_statements(environment), seconds=seconds
    )
    yield WorkflowRole(
        name="deploy",
        trust=(deploy,),
        statements=deploy_statements(environment, qualifier),
        seconds=seconds,
    )
    if source is not None:
        yield WorkflowRole(
            name="promote",
            trust=(deploy,),
            statements=promote_statements(environment, source),
            seconds=seconds,
        )
    far = [receiver for receiver in receivers if receiver.account != environment.account]
    if far:
        yield WorkflowRole(
            name="gate",
            trust=tuple(
                role_trust(names.pipeline_role_arn(receiver, "promote")) for receiver in far
            ),
            statements=gate_statements(environment),
        )


def subjects(github: GithubSpec, context: str) -> list[str]:
    """Return a token's `sub` in both forms: with names alone, and with names and numbers.

    `context` is `pull_request`, `ref:<git reference>` or `environment:<name>`.
    """
    owner, _, name = github.repository.partition("/")
    numbered = f"{owner}@{github.owner_id}/{name}@{github.repository_id}"
    return [f"repo:{repository}:{context}" for repository in (github.repository, numbered)]


def trust_statement(
    github: GithubSpec,
    provider: str | dict[str, Any],
    context: str,
    *,
    run_workflow: bool = False,
    from_main: bool = False,
) -> Statement:
    """Return who may assume a role: one repository's workflows, in one context.

    `run_workflow`: only jobs of the workflow that builds, deploys and promotes, in main's version;
    `from_main`: only runs of the main branch. `provider` is the OIDC provider's ARN or its `Ref`.
    """
    claims: dict[str, str | list[str]] = {
        "aud": AUDIENCE,
        "sub": subjects(github, context),
        "repository_id": str(github.repository_id),
    }
    if run_workflow:
        claims["job_workflow_ref"] = f"{github.repository}/{names.RUN_WORKFLOW}@{MAIN}"
    if from_main:
        claims["ref"] = MAIN
    condition = {f"{GITHUB_ISSUER}:{name}": value for name, value in claims.items()}
    return {
        "Effect": "Allow",
        "Principal": {"Federated": provider},
        "Action": "sts:AssumeRoleWithWebIdentity",
        "Condition": {"StringEquals": condition},
    }


def role_trust(role: str) -> Statement:
    """Return that one role, by its ARN, may assume this one, whether it exists yet or not."""
    return {
        "Effect": "Allow",
        "Principal": {"AWS": f"{role.partition(':role/')[0]}:root"},
        "Action": "sts:AssumeRole",
        "Condition": {"ArnEquals": {"aws:PrincipalArn": role}},
    }
