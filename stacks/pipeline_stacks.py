"""Where container images and engines are built, and who may have that done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from constructs import Construct

from onboarding.environment_spec import EnvironmentSpec, GithubSpec, GitlabSpec
from onboarding.platform import ServingPlatform
from roundhouse_cdk.engine_images import ImageBuilds, ImageBuildsProps
from roundhouse_cdk.engine_pipeline import BuildPrograms, EnginePipeline, EnginePipelineProps
from roundhouse_cdk.pipeline_roles import PipelineRoles, PipelineRolesProps
from stacks.images import AWS_TRITON_REPOSITORY, AWS_VLLM_REPOSITORY, DOCKERFILES
from stacks.logical_ids import keep_logical_ids
from stacks.resources import EnvironmentStack


class ImagesStack(EnvironmentStack):
    """Deploys the project that builds images."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        environment: EnvironmentSpec,
        platform: ServingPlatform,
        buildspec: str,
    ) -> None:
        super().__init__(
            scope, construct_id, environment, part="images", description="image builds"
        )
        triton = () if platform.base_image is None else (AWS_TRITON_REPOSITORY,)
        props = ImageBuildsProps(
            environment=environment,
            images=tuple(DOCKERFILES),
            base_repositories=(*triton, AWS_VLLM_REPOSITORY),
            buildspec=buildspec,
        )
        self.builds = ImageBuilds(self, "Default", props=props)
        keep_logical_ids(self.builds)


class BuildsStack(EnvironmentStack):
    """Deploys what turns a source into a published engine."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        environment: EnvironmentSpec,
        platform: ServingPlatform,
        image_tags: Mapping[str, str],
        engines: BuildPrograms,
        checkpoints: BuildPrograms | None = None,
    ) -> None:
        """`checkpoints` is for environments with text generators alone."""
        super().__init__(
            scope, construct_id, environment, part="builds", description="engine builds"
        )
        props = EnginePipelineProps(
            environment=environment,
            platform=platform,
            image_tags=image_tags,
            engines=engines,
            checkpoints=checkpoints,
        )
        self.pipeline = EnginePipeline(self, "Default", props=props)
        keep_logical_ids(self.pipeline)


class AccessStack(EnvironmentStack):
    """Deploys the roles of the pull-request pipeline, where an environment names its forge.

    `source` is the environment that this one promotes from, `receivers` are those that promote from
    it.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        environment: EnvironmentSpec,
        forge: GithubSpec | GitlabSpec,
        source: EnvironmentSpec | None = None,
        receivers: Sequence[EnvironmentSpec] = (),
    ) -> None:
        super().__init__(
            scope, construct_id, environment, part="access", description="roles of the workflows"
        )
        props = PipelineRolesProps(
            environment=environment,
            forge=forge,
            qualifier=self.synthesizer.bootstrap_qualifier or "hnb659fds",
            source=source,
            receivers=receivers,
        )
        self.pipeline = PipelineRoles(self, "Default", props=props)
        keep_logical_ids(self.pipeline)
