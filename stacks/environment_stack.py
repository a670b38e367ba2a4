"""A stack of an environment, and logical ids of what was deployed before."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import cast

from aws_cdk import CfnResource, Environment, Stack
from constructs import Construct, IConstruct

from onboarding import names
from onboarding.environment_spec import EnvironmentSpec


class EnvironmentStack(Stack):
    """A stack of an environment, named by its `part` of it; `tags` are beside the environment's."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        environment: EnvironmentSpec,
        *,
        part: str,
        description: str,
        is_protected: bool = False,
        tags: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        super().__init__(
            scope,
            construct_id,
            stack_name=names.stack_name(environment, part),
            env=Environment(account=environment.account, region=environment.region),
            description=f"Roundhouse: {description} of {environment.name}",
            tags={"roundhouse-environment": environment.name, **tags},
            termination_protection=is_protected,
        )


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
