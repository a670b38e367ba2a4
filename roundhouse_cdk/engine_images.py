"""Container images: the repositories that hold them, and the project that builds them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aws_cdk import Duration
from aws_cdk import aws_codebuild as codebuild
from aws_cdk import aws_ecr as ecr
from constructs import Construct

from onboarding import arns, names
from onboarding.environment_spec import EnvironmentSpec
from onboarding.platform import aws_partition, triton_registries
from roundhouse_cdk.artifact_store import KEPT
from roundhouse_cdk.build_project import BuildProject, log_group_name
from roundhouse_cdk.statements import PULL, REGISTRY_LOG_IN, Permissions, Statements, allow

KEPT_IMAGES = 50
"""ECR cannot know which tags are deployed; fifty changes of an image ago is beyond any rollback."""
PUSH = (
    "ecr:BatchCheckLayerAvailability BatchGetImage CompleteLayerUpload DescribeImages"
    " GetDownloadUrlForLayer InitiateLayerUpload PutImage UploadLayerPart"
)
TIMEOUT_MINUTES, QUEUED_MINUTES = 120, 60


@dataclass(frozen=True, kw_only=True)
class EngineImagesProps:
    """`images` are names such as triton, each of which gets a repository."""

    environment: EnvironmentSpec
    images: Sequence[str]


class EngineImages(Construct):
    """Deploys a repository for each image; `repositories` has them by the image's name."""

    def __init__(self, scope: Construct, construct_id: str, *, props: EngineImagesProps) -> None:
        super().__init__(scope, construct_id)
        self.repositories = {
            image: self._repository(image, names.repository(props.environment, image))
            for image in props.images
        }

    def _repository(self, image: str, name: str) -> ecr.Repository:
        return ecr.Repository(
            self,
            image.title().replace("-", ""),
            repository_name=name,
            image_tag_mutability=ecr.TagMutability.IMMUTABLE,
            image_scan_on_push=True,
            # Images hold public libraries and this repository's code, no data; under a key that is
            # one day disabled no endpoint could start another instance. And a repository's
            # encryption can never be changed.
            encryption=ecr.RepositoryEncryption.AES_256,
            lifecycle_rules=[
                ecr.LifecycleRule(
                    rule_priority=1,
                    description="What lost its tag is a push that did not end",
                    tag_status=ecr.TagStatus.UNTAGGED,
                    max_image_age=Duration.days(7),
                ),
                ecr.LifecycleRule(
                    rule_priority=2,
                    description=f"The newest {KEPT_IMAGES}",
                    tag_status=ecr.TagStatus.TAGGED,
                    tag_pattern_list=["*"],
                    max_image_count=KEPT_IMAGES,
                ),
            ],
            removal_policy=KEPT,
        )


@dataclass(frozen=True, kw_only=True)
class ImageBuildsProps:
    """`images` are pushed; `base_repositories` are those of AWS's registry that ours start from."""

    environment: EnvironmentSpec
    images: Sequence[str]
    base_repositories: Sequence[str]
    buildspec: codebuild.BuildSpec


class ImageBuilds(BuildProject):
    """Deploys a CodeBuild project with a Docker daemon, so that nobody's own machine needs one.

    It stays outside the environment's VPC: it needs public packages and base images, and sees no
    model, data or engine.
    """

    def __init__(self, scope: Construct, construct_id: str, *, props: ImageBuildsProps) -> None:
        environment = props.environment
        machine = codebuild.BuildEnvironment(
            # CodeBuild's own: Docker, Python and the AWS command line.
            build_image=codebuild.LinuxBuildImage.STANDARD_7_0,
            # 128 GB of disk: Triton's image alone is 20 unpacked.
            compute_type=codebuild.ComputeType.LARGE,
            # What starts a Docker daemon in the build.
            privileged=True,
        )
        super().__init__(
            scope,
            construct_id,
            environment=environment,
            route=names.IMAGES_ROUTE,
            description=f"Builds container images of {environment.name}",
            buildspec=props.buildspec,
            machine=machine,
            statements=image_statements(props),
            minutes=TIMEOUT_MINUTES,
            queued_minutes=QUEUED_MINUTES,
            reasons={"CB3": "a build of images runs Docker"},
        )


def image_statements(props: ImageBuildsProps) -> Statements:
    """Every statement of the project's role.

    Read its source, pull the base images, push the images, write its log. No base image is pulled
    in a region whose registry of AWS is not known.
    """
    environment, may = props.environment, Permissions(props.environment)
    account, region = triton_registries().get(environment.region), environment.region
    registry = f"arn:{aws_partition(region)}:ecr:{region}:{account}:repository"
    bases = [f"{registry}/{name}" for name in props.base_repositories if account is not None]
    return (
        allow("PushImages", PUSH, [arns.repository(environment, name) for name in props.images]),
        REGISTRY_LOG_IN,
        *([allow("PullBaseImage", PULL, bases)] if bases else []),
        may.read([f"{names.SOURCES_PREFIX}/*"]),
        may.list_bucket(),
        may.use_key(writes=False),
        may.write_logs(log_group_name(environment, names.IMAGES_ROUTE)),
    )
