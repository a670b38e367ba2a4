"""The text of a template that the CDK itself does not write, as it would write it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from json.encoder import encode_basestring
from typing import Any

LOWEST_BOOTSTRAP = 6
"""The version of the CDK's bootstrap stack that its own stacks ask for."""
DEFAULT_QUALIFIER = "hnb659fds"
"""Of the bootstrap stack, where the context names none."""
QUALIFIER_CONTEXT = "@aws-cdk/core:bootstrapQualifier"


def with_bootstrap_rule(
    template: Mapping[str, Any], qualifier: str = DEFAULT_QUALIFIER
) -> dict[str, Any]:
    """The template with the parameter and the rule by which CloudFormation refuses an account with
    too old a bootstrap.
    """
    too_old = [str(version) for version in range(1, LOWEST_BOOTSTRAP)]
    parameter = {
        "Type": "AWS::SSM::Parameter::Value<String>",
        "Default": f"/cdk-bootstrap/{qualifier}/version",
        "Description": "Version of the CDK Bootstrap resources in this environment, automatically retrieved from SSM Parameter "
        "Store. [cdk:skip]",
    }
    assertion = {
        "Assert": {"Fn::Not": [{"Fn::Contains": [too_old, {"Ref": "BootstrapVersion"}]}]},
        "AssertDescription": f"CDK bootstrap stack version {LOWEST_BOOTSTRAP} required. Please run 'cdk bootstrap' with a recent "
        "version of the CDK CLI.",
    }
    return {
        **template,
        "Parameters": {"BootstrapVersion": parameter},
        "Rules": {
            **template.get("Rules", {}),
            "CheckBootstrapVersion": {"Assertions": [assertion]},
        },
    }


def json_text(value: Any, line: str = "\n") -> str:
    """JSON as the CDK writes it: indented by one space, whole numbers without a point.

    `line` begins the value's own lines.
    """
    inner = f"{line} "
    if isinstance(value, dict) and value:
        return f"{{{','.join([f'{inner}{encode_basestring(key)}: {json_text(each, inner)}' for key, each in value.items()])}{line}}}"
    if isinstance(value, list | tuple) and value:
        return f"[{','.join([f'{inner}{json_text(each, inner)}' for each in value])}{line}]"
    if isinstance(value, str):
        return encode_basestring(value)
    whole = isinstance(value, float) and value.is_integer()
    return json.dumps(int(value) if whole else value)
