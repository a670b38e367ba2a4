"""Roles: their policies, who may assume them, their boundary and tags."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from botocore.exceptions import ClientError

from roundhouse.aws.clients import Client, calling
from roundhouse.gitops.drift.difference import Differ, Difference, plain
from roundhouse.gitops.drift.stack import DeployedStack

ROLE, ROLE_POLICY = "AWS::IAM::Role", "AWS::IAM::Policy"


def role_drift(iam: Client, stack: DeployedStack, differ: Differ) -> Iterator[Difference]:
    """Yield what differs of every role of a stack."""
    policies = [properties for _, properties in stack.resources(ROLE_POLICY)]
    for name, properties in stack.resources(ROLE):
        live = _read_role(iam, name)
        if live is None:
            yield from differ(f"role {name}", name, None)
            continue
        own = [item for item in policies if name in item["Roles"]]
        wanted = {item["PolicyName"]: item["PolicyDocument"]
                  for item in (*properties.get("Policies", ()), *own)}  # fmt: skip
        for policy in sorted(wanted.keys() | live["policies"].keys()):
            sides = (wanted.get(policy), live["policies"].get(policy))
            yield from differ(f"policy {policy} of role {name}", *map(plain, sides))
        for what, deployed, runs in (
            ("trust policy", properties["AssumeRolePolicyDocument"], live["trust"]),
            ("managed policies", properties.get("ManagedPolicyArns", []), live["attached"]),
            ("permissions boundary", properties.get("PermissionsBoundary"), live["boundary"]),
        ):
            yield from differ(f"{what} of role {name}", plain(deployed), plain(runs))
        yield from tag_drift(stack, f"role {name}", live["tags"], differ)


def tag_drift(
    stack: DeployedStack, what: str, live: Mapping[str, str], differ: Differ
) -> Iterator[Difference]:
    """Yield the tags of a stack that one of its resources lacks; others may tag it further."""
    for key, value in sorted(stack.tags.items()):
        yield from differ(f"tag {key} of {what}", value, live.get(key))


def _read_role(iam: Client, name: str) -> dict[str, Any] | None:
    with calling(f"Role {name}"):
        try:
            role = iam.get_role(RoleName=name)["Role"]
        except ClientError as error:
            if error.response["Error"]["Code"] != "NoSuchEntity":
                raise
            return None
        inline = [
            policy
            for page in iam.get_paginator("list_role_policies").paginate(RoleName=name)
            for policy in page["PolicyNames"]
        ]
        attached = [
            policy["PolicyArn"]
            for page in iam.get_paginator("list_attached_role_policies").paginate(RoleName=name)
            for policy in page["AttachedPolicies"]
        ]
        documents = {
            policy: iam.get_role_policy(RoleName=name, PolicyName=policy)["PolicyDocument"]
            for policy in inline
        }
    return {
        "policies": {policy: _document(value) for policy, value in documents.items()},
        "attached": attached,
        "trust": _document(role["AssumeRolePolicyDocument"]),
        "boundary": role.get("PermissionsBoundary", {}).get("PermissionsBoundaryArn"),
        "tags": {tag["Key"]: tag["Value"] for tag in role.get("Tags", ())},
    }


def _document(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value
