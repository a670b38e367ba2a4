"""CloudFormation resources as plain data."""

from __future__ import annotations

from typing import Any

from onboarding.environment_spec import NetworkSpec

Properties = dict[str, Any]
"""As CloudFormation spells them."""
Resource = dict[str, Any]
"""`Type`, `Properties`, and where needed `DependsOn` or `Metadata`."""
Resources = dict[str, Resource]
"""By logical id."""
Template = dict[str, Any]
"""`Resources` and `Outputs`."""


def vpc_config(network: NetworkSpec | None) -> Properties:
    """Return `VpcConfig` of what runs in the environment's network; nothing without one."""
    if network is None:
        return {}
    subnets, groups = list(network.subnet_ids), list(network.security_group_ids)
    return {"VpcConfig": {"Subnets": subnets, "SecurityGroupIds": groups}}


LOG_DAYS = 90
"""As long as a build's source: after that nobody could repeat it."""


def log_group(name: str) -> dict[str, Any]:
    """Properties of an `AWS::Logs::LogGroup`.

    It is encrypted by CloudWatch's own key: a log of a build holds no one's data.
    """
    return {"LogGroupName": name, "RetentionInDays": LOG_DAYS}
