"""Which workflows of a GitHub repository may take a role.

Sources: IAM user guide, "Available keys for AWS OIDC federation"; GitHub docs, "OpenID Connect
reference". Repositories made since 2026-07-15 have the numbers in their tokens' subject.
"""

from __future__ import annotations

from typing import Any

from onboarding.aws_limits import GITHUB_ISSUER
from onboarding.environment_spec import GithubSpec
from onboarding.names import RUN_WORKFLOW
from stacks.access.policies import Statement

AUDIENCE = "sts.amazonaws.com"
MAIN = "refs/heads/main"
PULL_REQUEST, MAIN_BRANCH = "pull_request", f"ref:{MAIN}"


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
        claims["job_workflow_ref"] = f"{github.repository}/{RUN_WORKFLOW}@{MAIN}"
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
