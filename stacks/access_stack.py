"""Roles of the pull-request pipeline, where an environment names its GitHub repository."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from constructs import Construct

from onboarding.aws_limits import GITHUB_ISSUER
from onboarding.environment_spec import EnvironmentSpec, GithubSpec
from roundhouse_cdk.forge.roles import AUDIENCE, workflow_roles
from roundhouse_cdk.wildcards import with_reasons
from stacks.resources import EnvironmentStack, add_resources
from stacks.template import Resource

PROVIDER = "GithubProvider"


class AccessStack(EnvironmentStack):
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
            scope, construct_id, environment, part="access", description="roles of the workflows"
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
