"""One environment: foundation, builds, a stack for every endpoint, and what watches them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aws_cdk import Environment, Stage
from constructs import Construct

from onboarding import names
from onboarding.deployment import Deployment
from onboarding.environment_spec import EnvironmentSpec
from onboarding.platform import serving_platforms
from stacks.builds_stack import BuildsStack
from stacks.endpoint_stack import EndpointStack
from stacks.foundation_stack import FoundationStack
from stacks.image_tag import image_tags
from stacks.observability_stack import ObservabilityStack
from stacks.serving_image import serving_image


@dataclass(frozen=True, kw_only=True)
class Sources:
    """What synth takes from the repository's code: the files that each image holds, and the build's commands."""

    image_files: Mapping[str, Mapping[str, bytes]]
    buildspec: str


class EnvironmentStage(Stage):
    """Gathers the stacks of one environment: `<environment>/Foundation`, `/Builds`, `/Endpoint-<name>`, `/Observability`."""

    def __init__(
        self, scope: Construct, *, environment: EnvironmentSpec, deployments: Sequence[Deployment], sources: Sources
    ) -> None:
        super().__init__(scope, environment.name, env=Environment(account=environment.account, region=environment.region))
        platform = serving_platforms()[environment.platform]
        tags = image_tags(sources.image_files, platform.base_image)
        foundation = FoundationStack(self, "Foundation", environment=environment)
        builds = BuildsStack(
            self, "Builds", environment=environment, platform=platform, image_tags=tags, buildspec=sources.buildspec
        )
        builds.add_stack_dependency(foundation)
        for deployment in deployments:
            image = serving_image(deployment)
            image_uri = names.image_uri(environment, image, tags[image])
            endpoint = EndpointStack(self, f"Endpoint-{deployment.name}", deployment=deployment, image_uri=image_uri)
            endpoint.add_stack_dependency(foundation)
        if deployments:
            ObservabilityStack(self, "Observability", environment=environment, deployments=deployments)
