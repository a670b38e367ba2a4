"""CloudFormation properties of the project that builds container images, and what its role may do."""

from __future__ import annotations

from typing import Any

from onboarding import names
from onboarding.environment_spec import EnvironmentSpec
from onboarding.platform import ServingPlatform, aws_partition, triton_registries
from stacks.access.statements import (
    Statement,
    base_image_pull,
    bucket_listing,
    image_push,
    key_use,
    log_stream_writes,
    object_reads,
)
from stacks.images.builds import AWS_TRITON_REPOSITORY, DOCKERFILES

ROUTE = "images"
CODEBUILD_IMAGE = "aws/codebuild/standard:7.0"
"""CodeBuild's own: Docker, Python and the AWS command line."""
TIMEOUT_MINUTES = 120
QUEUED_MINUTES = 60


def image_project(environment: EnvironmentSpec, *, buildspec: str) -> dict[str, Any]:
    """An `AWS::CodeBuild::Project` without its role; every build brings its source and orders as a
    zip.

    It stays outside the environment's VPC: it needs public packages and base images, and sees no
    model, data or engine.
    """
    return {
        "Name": names.builder_project(environment, ROUTE),
        "Description": f"Builds container images of {environment.name}",
        "Source": {"Type": "NO_SOURCE", "BuildSpec": buildspec},
        "Artifacts": {"Type": "NO_ARTIFACTS"},
        "Environment": {
            "Type": "LINUX_CONTAINER",
            # 128 GB of disk: Triton's image alone is 20 unpacked.
            "ComputeType": "BUILD_GENERAL1_LARGE",
            "Image": CODEBUILD_IMAGE,
            "ImagePullCredentialsType": "CODEBUILD",
            # What starts a Docker daemon in the build.
            "PrivilegedMode": True,
        },
        "LogsConfig": {
            "CloudWatchLogs": {"Status": "ENABLED", "GroupName": log_group_name(environment)}
        },
        "TimeoutInMinutes": TIMEOUT_MINUTES,
        "QueuedTimeoutInMinutes": QUEUED_MINUTES,
    }


def image_statements(
    environment: EnvironmentSpec, platform: ServingPlatform
) -> tuple[Statement, ...]:
    """Every statement of the project's role: read its source, pull the base image, push the images,
    write its log.
    """
    return (
        *image_push(environment, tuple(DOCKERFILES)),
        *_base_image(environment, platform),
        *object_reads(environment, [f"{names.SOURCES_PREFIX}/*"]),
        *bucket_listing(environment),
        *key_use(environment, ["kms:Decrypt"]),
        *log_stream_writes(environment, log_group_name(environment)),
    )


def log_group_name(environment: EnvironmentSpec) -> str:
    """The project's log group."""
    return f"/aws/codebuild/{names.builder_project(environment, ROUTE)}"


def _base_image(environment: EnvironmentSpec, platform: ServingPlatform) -> tuple[Statement, ...]:
    account = triton_registries().get(environment.region)
    if platform.base_image is None or account is None:
        return ()
    region = environment.region
    return base_image_pull(
        f"arn:{aws_partition(region)}:ecr:{region}:{account}:repository/{AWS_TRITON_REPOSITORY}"
    )
