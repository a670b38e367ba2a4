"""A stack of an environment."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from aws_cdk import Environment, Stack
from constructs import Construct

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
