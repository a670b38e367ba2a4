"""The roles of GitHub's workflows: for each who may take it, for how long, and what it may do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from onboarding import names
from onboarding.aws_limits import SESSION_SECONDS
from onboarding.environment_spec import EnvironmentSpec, GithubSpec
from stacks.access.policies import Statement
from stacks.github.reads import drift_statements, plan_statements
from stacks.github.statements import (
    build_statements,
    deploy_statements,
    gate_statements,
    promote_statements,
)
from stacks.github.trust import MAIN_BRANCH, PULL_REQUEST, role_trust, trust_statement


@dataclass(frozen=True, kw_only=True)
class WorkflowRole:
    """One role: the last part of its name, its trust, its statements, and its longest session."""

    name: names.Purpose
    trust: tuple[Statement, ...]
    statements: tuple[Statement, ...]
    seconds: int = SESSION_SECONDS.least

    def properties(self, environment: EnvironmentSpec) -> dict[str, Any]:
        """Return the properties of its `AWS::IAM::Role`."""
        policy = {"Version": "2012-10-17", "Statement": list(self.statements)}
        properties: dict[str, Any] = {
            "RoleName": names.pipeline_role(environment, self.name),
            "AssumeRolePolicyDocument": {"Version": "2012-10-17", "Statement": list(self.trust)},
            "MaxSessionDuration": self.seconds,
            "Policies": [{"PolicyName": "exact", "PolicyDocument": policy}],
        }
        if environment.permissions_boundary_arn is not None:
            properties["PermissionsBoundary"] = environment.permissions_boundary_arn
        return properties


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
