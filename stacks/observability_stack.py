"""What people watch: one dashboard an environment."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import Environment, Stack
from constructs import Construct

from onboarding import names
from onboarding.deployment import Deployment
from onboarding.environment_spec import EnvironmentSpec
from onboarding.text_generation.generation_deployment import GenerationDeployment
from stacks.dashboards.environment import environment_dashboard
from stacks.generation.dashboard import generation_widgets
from stacks.resources import add_resources


class ObservabilityStack(Stack):
    """Deploys the environment's dashboard."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        environment: EnvironmentSpec,
        deployments: Sequence[Deployment],
        generators: Sequence[GenerationDeployment] = (),
    ) -> None:
        super().__init__(
            scope,
            construct_id,
            stack_name=names.stack_name(environment, "observability"),
            env=Environment(account=environment.account, region=environment.region),
            description=f"Roundhouse: dashboard of {environment.name}",
            tags={"roundhouse-environment": environment.name},
        )
        widgets = generation_widgets(generators)
        dashboard = environment_dashboard(environment, deployments, widgets)
        add_resources(self, {"Dashboard": dashboard})
