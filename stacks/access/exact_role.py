"""The properties of a role that one service assumes, with exactly the statements given and no
managed policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onboarding.environment_spec import EnvironmentSpec
from stacks.access.statements import Statement


def exact_role(
    environment: EnvironmentSpec, *, service: str, statements: Sequence[Statement]
) -> dict[str, Any]:
    """Properties of an `AWS::IAM::Role`; only this account's use of the service may assume it."""
    trust = {
        "Effect": "Allow",
        "Principal": {"Service": service},
        "Action": "sts:AssumeRole",
        "Condition": {"StringEquals": {"aws:SourceAccount": environment.account}},
    }
    properties: dict[str, Any] = {
        "AssumeRolePolicyDocument": {"Version": "2012-10-17", "Statement": [trust]},
        "Policies": [
            {
                "PolicyName": "exact",
                "PolicyDocument": {"Version": "2012-10-17", "Statement": list(statements)},
            }
        ],
    }
    if environment.permissions_boundary_arn is not None:
        properties["PermissionsBoundary"] = environment.permissions_boundary_arn
    return properties
