"""CloudFormation properties of the build projects, and what their roles may do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from onboarding import names
from onboarding.environment_spec import EnvironmentSpec
from stacks.statements import Statement, image_pull, key_use, log_writes, network_interfaces, object_reads, object_writes


@dataclass(frozen=True, kw_only=True)
class BuildRouteProps:
    """One kind of machine that builds engines."""

    name: str
    construct_id: str
    image: str
    environment_type: str
    compute_type: str
    timeout_minutes: int


ROUTES = (
    BuildRouteProps(
        name="cpu",
        construct_id="Cpu",
        image="builder-cpu",
        environment_type="LINUX_CONTAINER",
        compute_type="BUILD_GENERAL1_MEDIUM",
        timeout_minutes=60,
    ),
    # The one on-demand GPU of use: an A10G, compute capability 8.6.
    BuildRouteProps(
        name="gpu",
        construct_id="Gpu",
        image="builder-gpu",
        environment_type="LINUX_GPU_CONTAINER",
        compute_type="BUILD_GENERAL1_SMALL",
        timeout_minutes=120,
    ),
)
QUEUED_MINUTES = 480


def project_properties(environment: EnvironmentSpec, route: BuildRouteProps, *, image_uri: str, buildspec: str) -> dict[str, Any]:
    """An `AWS::CodeBuild::Project` without its role.

    It has no source: every build brings one, as a zip in the artifact bucket, so a changed model changes no template.
    """
    variables = {"ROUNDHOUSE_ENVIRONMENT": environment.name, "ROUNDHOUSE_BUCKET": names.artifact_bucket(environment)}
    properties: dict[str, Any] = {
        "Name": names.builder_project(environment, route.name),
        "Description": f"Builds engines of {environment.name} by route {route.name}",
        "Source": {"Type": "NO_SOURCE", "BuildSpec": buildspec},
        "Artifacts": {"Type": "NO_ARTIFACTS"},
        "Environment": {
            "Type": route.environment_type,
            "ComputeType": route.compute_type,
            "Image": image_uri,
            "ImagePullCredentialsType": "SERVICE_ROLE",
            "PrivilegedMode": False,
            "EnvironmentVariables": [{"Name": name, "Type": "PLAINTEXT", "Value": value} for name, value in variables.items()],
        },
        "LogsConfig": {"CloudWatchLogs": {"Status": "ENABLED", "GroupName": _log_group(environment, route)}},
        "TimeoutInMinutes": route.timeout_minutes,
        "QueuedTimeoutInMinutes": QUEUED_MINUTES,
    }
    if environment.network is not None:
        properties["VpcConfig"] = {
            "VpcId": environment.network.vpc_id,
            "Subnets": list(environment.network.subnet_ids),
            "SecurityGroupIds": list(environment.network.security_group_ids),
        }
    return properties


def build_statements(environment: EnvironmentSpec, route: BuildRouteProps) -> tuple[Statement, ...]:
    """Every statement of a project's role: read sources, read and write networks and engines, write its own log group."""
    built = [f"{names.NETWORKS_PREFIX}/*", f"{names.ENGINES_PREFIX}/*"]
    return (
        *image_pull(environment, route.image),
        *object_reads(environment, [f"{names.SOURCES_PREFIX}/*", *built]),
        *object_writes(environment, built),
        *key_use(environment, ["kms:Decrypt", "kms:GenerateDataKey"]),
        *log_writes(environment, _log_group(environment, route)),
        *network_interfaces(environment),
    )


def _log_group(environment: EnvironmentSpec, route: BuildRouteProps) -> str:
    return f"/aws/codebuild/{names.builder_project(environment, route.name)}"
