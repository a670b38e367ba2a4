"""Where container images are built.

One CodeBuild project with a Docker daemon, so that nobody's own machine needs one.
"""

from __future__ import annotations

from constructs import Construct

from onboarding import names
from onboarding.environment_spec import EnvironmentSpec
from onboarding.platform import ServingPlatform, aws_partition, triton_registries
from stacks.access.policies import (
    PULL,
    Statement,
    allow,
    bucket_listing,
    exact_role,
    image_push,
    key_use,
    log_stream_writes,
    object_reads,
)
from stacks.builds.projects import codebuild_project, log_group_name
from stacks.images import AWS_TRITON_REPOSITORY, AWS_VLLM_REPOSITORY, DOCKERFILES, ROUTE
from stacks.resources import EnvironmentStack, add_resources
from stacks.suppressions import OUTPUT, with_reasons
from stacks.template import Properties, log_group


class ImagesStack(EnvironmentStack):
    """Deploys the project, its role, and its log group."""

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
        properties = image_project(environment, buildspec=buildspec)
        logs = log_group(log_group_name(environment, ROUTE))
        role = exact_role(
            environment,
            service="codebuild.amazonaws.com",
            statements=image_statements(environment, platform),
        )
        project = {**properties, "ServiceRole": {"Fn::GetAtt": ["Role", "Arn"]}}
        add_resources(
            self,
            {
                "Logs": {"Type": "AWS::Logs::LogGroup", "Properties": logs},
                "Role": with_reasons({"Type": "AWS::IAM::Role", "Properties": role}),
                "Project": with_reasons(
                    {"Type": "AWS::CodeBuild::Project", "Properties": project},
                    CB3="a build of images runs Docker",
                    CB4=OUTPUT,
                ),
            },
        )


CODEBUILD_IMAGE = "aws/codebuild/standard:7.0"
"""CodeBuild's own: Docker, Python and the AWS command line."""
TIMEOUT_MINUTES = 120
QUEUED_MINUTES = 60


def image_project(environment: EnvironmentSpec, *, buildspec: str) -> Properties:
    """An `AWS::CodeBuild::Project` without its role.

    It stays outside the environment's VPC: it needs public packages and base images, and sees no
    model, data or engine.
    """
    return codebuild_project(
        environment,
        ROUTE,
        description=f"Builds container images of {environment.name}",
        buildspec=buildspec,
        machine={
            "Type": "LINUX_CONTAINER",
            # 128 GB of disk: Triton's image alone is 20 unpacked.
            "ComputeType": "BUILD_GENERAL1_LARGE",
            "Image": CODEBUILD_IMAGE,
            "ImagePullCredentialsType": "CODEBUILD",
            # What starts a Docker daemon in the build.
            "PrivilegedMode": True,
        },
        minutes=(TIMEOUT_MINUTES, QUEUED_MINUTES),
    )


def image_statements(
    environment: EnvironmentSpec, platform: ServingPlatform
) -> tuple[Statement, ...]:
    """Every statement of the project's role.

    Read its source, pull the base image, push the images, write its log.
    """
    return (
        *image_push(environment, tuple(DOCKERFILES)),
        *_base_images(environment, platform),
        *object_reads(environment, [f"{names.SOURCES_PREFIX}/*"]),
        *bucket_listing(environment),
        *key_use(environment, ["kms:Decrypt"]),
        *log_stream_writes(environment, log_group_name(environment, ROUTE)),
    )


def _base_images(environment: EnvironmentSpec, platform: ServingPlatform) -> tuple[Statement, ...]:
    """Pull AWS's images that ours start from; none where its registry is not known."""
    account, region = triton_registries().get(environment.region), environment.region
    if account is None:
        return ()
    triton = () if platform.base_image is None else (AWS_TRITON_REPOSITORY,)
    registry = f"arn:{aws_partition(region)}:ecr:{region}:{account}:repository"
    repositories = [f"{registry}/{name}" for name in (*triton, AWS_VLLM_REPOSITORY)]
    return (allow("PullBaseImage", PULL, repositories),)
