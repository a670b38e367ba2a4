"""Logical ids of resources that have been deployed under them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from aws_cdk import CfnResource
from constructs import IConstruct

OWN = "Default"
"""Id of a construct that leaves no trace in logical ids: they are older than the constructs."""


def keep_logical_ids(scope: IConstruct, *chosen: IConstruct) -> None:
    """Name the resources of L2 constructs by their path below `scope`, without the CDK's digest.

    They were deployed so before they were L2: under another id CloudFormation would make a second
    resource of the same name, and fail. `chosen` are constructs in the scope; default: all.
    """
    above = len(scope.node.path.split("/"))
    for construct in chosen or (scope,):
        for item in construct.node.find_all():
            if item.node.id == "Resource" and CfnResource.is_cfn_resource(item):
                parts = item.node.path.split("/")[above:-1]
                name = "".join(part for part in parts if part != "Default")
                cast("CfnResource", item).override_logical_id(name)


def keep_ids(constructs: Mapping[str, IConstruct]) -> None:
    """Give constructs these logical ids, by which CloudFormation knows what is deployed.

    Under another id each would be a second resource of the same name, which AWS refuses.
    """
    for logical_id, construct in constructs.items():
        own = construct if isinstance(construct, CfnResource) else construct.node.default_child
        cast("CfnResource", own).override_logical_id(logical_id)
