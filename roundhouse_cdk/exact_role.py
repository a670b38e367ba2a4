"""An IAM role with one inline policy, each of whose statements has its reason."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import Duration
from aws_cdk import aws_iam as iam
from constructs import Construct

from onboarding.environment_spec import EnvironmentSpec
from roundhouse_cdk.statements import Statement
from roundhouse_cdk.wildcards import add_metadata


class ExactRole(iam.Role):
    """Deploys a role within the environment's permissions boundary.

    The policy is inline: whoever needs the role finds it complete, and no grant of a construct that
    is given `exact` widens it. A service's name, such as `codebuild`, or a principal may assume it;
    a service for this account alone.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        environment: EnvironmentSpec,
        trusts: str | iam.IPrincipal,
        statements: Sequence[Statement],
        role_name: str | None = None,
        session_seconds: int | None = None,
    ) -> None:
        principal = trusts
        if isinstance(principal, str):
            account = {"StringEquals": {"aws:SourceAccount": environment.account}}
            principal = iam.ServicePrincipal(f"{trusts}.amazonaws.com", conditions=account)
        boundary = environment.permissions_boundary_arn
        seconds = None if session_seconds is None else Duration.seconds(session_seconds)
        super().__init__(
            scope,
            construct_id,
            role_name=role_name,
            assumed_by=principal,
            max_session_duration=seconds,
            inline_policies={
                "exact": iam.PolicyDocument.from_json({"Statement": list(statements)})
            },
            permissions_boundary=(
                None
                if boundary is None
                else iam.ManagedPolicy.from_managed_policy_arn(
                    scope, f"{construct_id}Boundary", boundary
                )
            ),
        )
        self.exact = self.without_policy_updates()
        """The same role for constructs that would add permissions of their own."""
        add_metadata(self, statements)
