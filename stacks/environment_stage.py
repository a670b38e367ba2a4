"""One environment: foundation, images, builds, a stack for every endpoint, observability."""

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
from stacks.images import base_image, image_tags
from stacks.images_stack import ImagesStack
from stacks.observability_stack import ObservabilityStack


@dataclass(frozen=True, kw_only=True)
class Sources:
    """What synth takes from the repository's code.

    The files that each image holds, the commands of both kinds of builds.
    """

    image_files: Mapping[str, Mapping[str, bytes]]
    buildspec: str
    images_buildspec: str


class EnvironmentStage(Stage):
    """The stacks of one environment.

    `<environment>/Foundation`, `/Images`, `/Builds`, `/Endpoint-<name>`, `/Observability`. Of only
    some endpoints, where `is_whole` is false: their stacks and what those depend on, the
    foundation.
    """

    def __init__(
        self,
        scope: Construct,
        *,
        environment: EnvironmentSpec,
        deployments: Sequence[Deployment],
        sources: Sources,
        is_whole: bool = True,
    ) -> None:
        super().__init__(
            scope,
            environment.name,
            env=Environment(account=environment.account, region=environment.region),
        )
        platform = serving_platforms()[environment.platform]
        tags = image_tags(sources.image_files, base_image(platform))
        foundation = FoundationStack(self, "Foundation", environment=environment)
        if is_whole:
            self._makers(environment, sources, tags, foundation)
        image_uris = {
            image: names.image_uri(environment, image, tag) for image, tag in tags.items()
        }
        for deployment in deployments:
            endpoint = EndpointStack(
                self, f"Endpoint-{deployment.name}", deployment=deployment, image_uris=image_uris
            )
            endpoint.add_stack_dependency(foundation)
        if is_whole and deployments:
            ObservabilityStack(
                self, "Observability", environment=environment, deployments=deployments
            )

    def _makers(
        self,
        environment: EnvironmentSpec,
        sources: Sources,
        image_tags: Mapping[str, str],
        foundation: FoundationStack,
    ) -> None:
        """What makes images and engines."""
        platform = serving_platforms()[environment.platform]
        images = ImagesStack(
            self,
            "Images",
            environment=environment,
            platform=platform,
            buildspec=sources.images_buildspec,
        )
        images.add_stack_dependency(foundation)
        builds = BuildsStack(
            self,
            "Builds",
            environment=environment,
            platform=platform,
            image_tags=image_tags,
            buildspec=sources.buildspec,
        )
        builds.add_stack_dependency(foundation)
