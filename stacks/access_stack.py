"""Roles of the pull-request pipeline, where an environment names its GitHub repository."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aws_cdk import Environment, Stack
from constructs import Construct

from onboarding import names
from onboarding.aws_limits import GITHUB_ISSUER
from onboarding.environment_spec import EnvironmentSpec, GithubSpec
from stacks.github.roles import workflow_roles
from stacks.github.trust import AUDIENCE
from stacks.resources import add_resources
from stacks.suppressions import with_reasons
from stacks.template import Resource

PROVIDER = "GithubProvider"


class AccessStack(Stack):
    """Deploys a role for each kind of workflow run, and GitHub's OIDC provider unless it is named.

    `source` is the environment that this one promotes from, `receivers` are those that promote from
    it.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        environment: EnvironmentSpec,
        github: GithubSpec,
        source: EnvironmentSpec | None = None,
        receivers: Sequence[EnvironmentSpec] = (),
    ) -> None:
        super().__init__(
            scope,
            construct_id,
            stack_name=names.stack_name(environment, "access"),
            env=Environment(account=environment.account, region=environment.region),
            description=f"Roundhouse: roles of the workflows of {environment.name}",
            tags={"roundhouse-environment": environment.name},
        )
        provider: str | dict[str, Any] = {"Ref": PROVIDER}
        if github.oidc_provider_arn is None:
            self._add_provider()
        else:
            provider = github.oidc_provider_arn
        roles = workflow_roles(
            environment,
            github,
            provider,
            qualifier=self.synthesizer.bootstrap_qualifier or "hnb659fds",
            source=source,
            receivers=receivers,
        )
        for role in roles:
            resource = {"Type": "AWS::IAM::Role", "Properties": role.properties(environment)}
            add_resources(self, {f"{role.name.capitalize()}Role": with_reasons(resource)})

    def _add_provider(self) -> None:
        provider: Resource = {
            "Type": "AWS::IAM::OIDCProvider",
            "Properties": {"Url": f"https://{GITHUB_ISSUER}", "ClientIdList": [AUDIENCE]},
            # Other environments of the account use it.
            "DeletionPolicy": "RetainExceptOnCreate",
            "UpdateReplacePolicy": "Retain",
        }
        add_resources(self, {PROVIDER: provider})
