"""Roles of the pull-request pipeline: who may take each, for how long, and what it may do.

Sources: IAM user guide, "Available keys for AWS OIDC federation"; GitHub docs, "OpenID Connect
reference"; GitLab docs, "Connect to cloud services" and "OpenID Connect (OIDC) Authentication Using
ID Tokens".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aws_cdk import RemovalPolicy
from aws_cdk import aws_iam as iam
from constructs import Construct

from onboarding import arns, names
from onboarding.aws_limits import SESSION_SECONDS
from onboarding.environment_spec import EnvironmentSpec, GithubSpec, GitlabSpec
from roundhouse_cdk.exact_role import ExactRole
from roundhouse_cdk.pipeline_statements import (
    build_statements,
    deploy_statements,
    drift_statements,
    gate_statements,
    plan_statements,
    promote_statements,
)
from roundhouse_cdk.statements import Statements

BOOTSTRAP_QUALIFIER = "hnb659fds"
"""Of `cdk bootstrap`, unless it is given another."""
AUDIENCE = "sts.amazonaws.com"
MAIN = "refs/heads/main"


@dataclass(frozen=True, kw_only=True)
class PipelineRolesProps:
    """`forge` is where the pipeline runs, `qualifier` that of the account's `cdk bootstrap`.

    `source` is the environment that this one promotes from, `receivers` are those that promote from
    it.
    """

    environment: EnvironmentSpec
    forge: GithubSpec | GitlabSpec
    qualifier: str = BOOTSTRAP_QUALIFIER
    source: EnvironmentSpec | None = None
    receivers: Sequence[EnvironmentSpec] = ()


class PipelineRoles(Construct):
    """Deploys a role for each kind of pipeline run, and the OIDC provider unless it is named.

    `roles` has them by purpose; `provider_arn` is the provider's. A provider stays when the stack
    goes: other environments of the account use it.
    """

    def __init__(self, scope: Construct, construct_id: str, *, props: PipelineRolesProps) -> None:
        super().__init__(scope, construct_id)
        environment, forge = props.environment, props.forge
        if forge.oidc_provider_arn is None:
            provider = iam.OidcProviderNative(
                self,
                "GithubProvider" if isinstance(forge, GithubSpec) else "GitlabProvider",
                url=f"https://{forge.issuer}",
                client_ids=[AUDIENCE],
                removal_policy=RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE,
            )
            self.provider_arn = provider.oidc_provider_arn
        else:
            self.provider_arn = forge.oidc_provider_arn
        claims = (
            github_trusts(environment, forge)
            if isinstance(forge, GithubSpec)
            else gitlab_trusts(forge)
        )
        trusts: dict[names.Purpose, iam.IPrincipal] = {
            purpose: iam.WebIdentityPrincipal(self.provider_arn, _conditions(forge, own))
            for purpose, own in claims.items()
        }
        may: dict[names.Purpose, Statements] = {
            "plan": plan_statements(environment),
            "drift": drift_statements(environment),
            "build": build_statements(environment),
            "deploy": deploy_statements(environment, props.qualifier),
        }
        if props.source is not None:
            may["promote"] = promote_statements(environment, props.source)
        may["gate"] = gate_statements(environment)
        far = [item for item in props.receivers if item.account != environment.account]
        if far:
            trusts["gate"] = iam.CompositePrincipal(*map(_promote_role, far))
        self.roles: dict[names.Purpose, iam.Role] = {
            purpose: ExactRole(
                self,
                f"{purpose.capitalize()}Role",
                environment=environment,
                trusts=trusts[purpose],
                statements=statements,
                role_name=names.pipeline_role(environment, purpose),
                session_seconds=(
                    SESSION_SECONDS.least
                    if purpose in ("plan", "drift", "gate")
                    else environment.session_seconds
                ),
            )
            for purpose, statements in may.items()
            if purpose in trusts
        }


Claim = str | list[str]
Claims = dict[str, Claim]


def _conditions(forge: GithubSpec | GitlabSpec, claims: Claims) -> dict[str, dict[str, Claim]]:
    """Return a token's claims, with the audience; one that ends in * is a pattern."""
    found: dict[str, dict[str, Claim]] = {}
    for name, value in {"aud": AUDIENCE, **claims}.items():
        is_pattern = isinstance(value, str) and value.endswith("*")
        operator = "StringLike" if is_pattern else "StringEquals"
        found.setdefault(operator, {})[f"{forge.issuer}:{name}"] = value
    return found


def github_trusts(environment: EnvironmentSpec, github: GithubSpec) -> dict[names.Purpose, Claims]:
    """Return what a workflow's token says of each role that it takes, beside the audience.

    One repository's workflows, in one context. What builds, deploys and promotes is one workflow,
    in main's version of it; what deploys, promotes and looks for drift runs for main alone.
    """
    approvals = f"environment:{names.approval_environment(environment)}"
    builds = f"environment:{names.approval_environment(environment, builds=True)}"
    owner, _, name = github.repository.partition("/")
    # Repositories made since 2026-07-15 have the numbers in their tokens' subject.
    numbered = f"{owner}@{github.owner_id}/{name}@{github.repository_id}"

    def claims(context: str, **more: str) -> Claims:
        subjects = [f"repo:{item}:{context}" for item in (github.repository, numbered)]
        return {"sub": subjects, "repository_id": str(github.repository_id), **more}

    run = {"job_workflow_ref": f"{github.repository}/{names.RUN_WORKFLOW}@{MAIN}"}
    deploy = claims(approvals, **run, ref=MAIN)
    return {
        "plan": claims("pull_request"),
        "drift": claims(f"ref:{MAIN}", ref=MAIN),
        "build": claims(builds, **run),
        "deploy": deploy,
        "promote": deploy,
    }


def gitlab_trusts(gitlab: GitlabSpec) -> dict[names.Purpose, Claims]:
    """Return the same of a GitLab pipeline's token, of which AWS knows the subject alone.

    A merge request's pipeline runs for its source branch; so builds are for every branch of the
    project, and all else for main, which GitLab protects. No job asks for `plan`.
    """
    branch = f"project_path:{gitlab.project}:ref_type:branch:ref:"
    main: Claims = {"sub": f"{branch}main"}
    return {"drift": main, "build": {"sub": f"{branch}*"}, "deploy": main, "promote": main}


def _promote_role(receiver: EnvironmentSpec) -> iam.IPrincipal:
    """The role that promotes to an environment, whether it exists yet or not."""
    role = arns.pipeline_role(receiver, "promote")
    root = iam.ArnPrincipal(f"{role.partition(':role/')[0]}:root")
    return root.with_conditions({"ArnEquals": {"aws:PrincipalArn": role}})
