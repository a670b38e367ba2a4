"""CloudFormation resources as plain data."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from onboarding.aws_limits import NAME_LENGTH
from onboarding.environment_spec import NetworkSpec

Properties = dict[str, Any]
"""As CloudFormation spells them."""
Resource = dict[str, Any]
"""`Type`, `Properties`, and where needed `DependsOn` or `Metadata`."""
Resources = dict[str, Resource]
"""By logical id."""
Template = dict[str, Any]
"""`Resources` and `Outputs`."""


DIGEST_LENGTH = 12


def retention(parameter: str, condition: str, value: str, noun: str) -> Template:
    """Return the parameter and the condition by which an update keeps the counts that it finds.

    A first deployment has none. `roundhouse deploy` sets the parameter with the first update that
    would change them; CloudFormation keeps its value from then on. `condition`: that it is `value`.
    """
    text = f"Updates keep {noun}; false in the first deployment"
    allowed = {"Type": "String", "Default": "false", "AllowedValues": ["false", "true"]}
    return {
        "Parameters": {parameter: {**allowed, "Description": text}},
        "Conditions": {condition: {"Fn::Equals": [{"Ref": parameter}, value]}},
    }


def content_name(prefix: str, properties: Mapping[str, Any]) -> str:
    """A SageMaker name.

    The prefix, trimmed to fit, and 12 hex digits of the sha256 of the properties as canonical JSON.
    A prefix that had to be trimmed counts as content, so that two that begin alike never share a
    name.
    """
    available = NAME_LENGTH - DIGEST_LENGTH - 1
    text = json.dumps(properties, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(
        (text if len(prefix) <= available else prefix + text).encode()
    ).hexdigest()[:DIGEST_LENGTH]
    return f"{prefix[:available].rstrip('-')}-{digest}"


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
