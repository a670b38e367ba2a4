"""CloudFormation properties of what builds engines.

A CodeBuild project for each route, and the state machine.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from onboarding import names
from onboarding.environment_spec import EnvironmentSpec
from onboarding.platform import ServingPlatform
from onboarding.text_generation.quantizer_route import QUANTIZER, QUANTIZER_IMAGE
from stacks.template import Properties, vpc_config

QUEUED_MINUTES = 480


@dataclass(frozen=True, kw_only=True)
class BuildRouteProps:
    """One kind of machine that CodeBuild has builds run on; a fleet brings its own."""

    name: str
    construct_id: str
    image: str
    environment_type: str
    compute_type: str
    fleet_arn: str | None = None


# 16 GiB: exporting and quantizing BERT-large takes 6.7 at its peak (docs/verification.md), and the
# next size down has 8 in all.
CPU = BuildRouteProps(
    name="cpu",
    construct_id="Cpu",
    image="builder-cpu",
    environment_type="LINUX_CONTAINER",
    compute_type="BUILD_GENERAL1_LARGE",
)
# The one on-demand GPU of use: an A10G, compute capability 8.6.
GPU = BuildRouteProps(
    name="gpu",
    construct_id="Gpu",
    image="builder-gpu",
    environment_type="LINUX_GPU_CONTAINER",
    compute_type="BUILD_GENERAL1_SMALL",
)


# Calibration and gate hold a model of 2 billion parameters twice, in 16 and in 32 bits: 12 GB and
# their activations of 70 (CodeBuild user guide, "Build environment compute modes and types").
QUANTIZER_ROUTE = BuildRouteProps(
    name=QUANTIZER,
    construct_id="Quantizer",
    image=QUANTIZER_IMAGE,
    environment_type="LINUX_CONTAINER",
    compute_type="BUILD_GENERAL1_XLARGE",
)


def build_routes(
    environment: EnvironmentSpec, platform: ServingPlatform
) -> tuple[BuildRouteProps, ...]:
    """The routes that have a project.

    Those of GPUs need TensorRT, and CodeBuild's GPUs or a fleet.
    """
    if platform.tensorrt is None:
        return (CPU,)
    on_demand = (CPU, GPU) if environment.has_codebuild_gpu else (CPU,)
    if environment.gpu_fleet_arn is None:
        return on_demand
    # Machine and type are the fleet's; CodeBuild asks for both, and takes neither.
    fleet = BuildRouteProps(
        name="fleet",
        construct_id="Fleet",
        image=GPU.image,
        environment_type=GPU.environment_type,
        compute_type=GPU.compute_type,
        fleet_arn=environment.gpu_fleet_arn,
    )
    return (*on_demand, fleet)


def training_image(platform: ServingPlatform) -> str:
    """The image of training jobs: what compiles for a GPU, wherever there is TensorRT."""
    return CPU.image if platform.tensorrt is None else GPU.image


def codebuild_project(
    environment: EnvironmentSpec,
    route: str,
    *,
    description: str,
    buildspec: str,
    machine: Properties,
    minutes: tuple[int, int],
) -> Properties:
    """An `AWS::CodeBuild::Project` without its role; `minutes` are of a build, and in the queue.

    It has no source: every build brings one, as a zip in the artifact bucket, so a changed model
    changes no template.
    """
    logs = {"Status": "ENABLED", "GroupName": log_group_name(environment, route)}
    return {
        "Name": names.builder_project(environment, route),
        "Description": description,
        "Source": {"Type": "NO_SOURCE", "BuildSpec": buildspec},
        "Artifacts": {"Type": "NO_ARTIFACTS"},
        "Environment": machine,
        "LogsConfig": {"CloudWatchLogs": logs},
        "TimeoutInMinutes": minutes[0],
        "QueuedTimeoutInMinutes": minutes[1],
    }


def project_properties(
    environment: EnvironmentSpec, route: BuildRouteProps, *, image_uri: str, buildspec: str
) -> Properties:
    """The project of a route of engine builds, without its role."""
    variables = {
        "ROUNDHOUSE_ENVIRONMENT": environment.name,
        "ROUNDHOUSE_BUCKET": names.artifact_bucket(environment),
    }
    machine: Properties = {
        "Type": route.environment_type,
        "ComputeType": route.compute_type,
        "Image": image_uri,
        "ImagePullCredentialsType": "SERVICE_ROLE",
        "PrivilegedMode": False,
        "EnvironmentVariables": [
            {"Name": name, "Type": "PLAINTEXT", "Value": value} for name, value in variables.items()
        ],
    }
    if route.fleet_arn is not None:
        machine["Fleet"] = {"FleetArn": route.fleet_arn}
    properties = codebuild_project(
        environment,
        route.name,
        description=f"Builds engines of {environment.name} by route {route.name}",
        buildspec=buildspec,
        machine=machine,
        minutes=(environment.builds.timeout_minutes, QUEUED_MINUTES),
    )
    # A fleet's machines stand in the network that the fleet itself names.
    if environment.network is not None and route.fleet_arn is None:
        network = {"VpcId": environment.network.vpc_id}
        properties["VpcConfig"] = network | vpc_config(environment.network)["VpcConfig"]
    return properties


def machine_properties(environment: EnvironmentSpec, definition: Mapping[str, Any]) -> Properties:
    """An `AWS::StepFunctions::StateMachine` without its role and the substitution of `JobRole`.

    The definition goes in as text: CloudFormation makes texts of the numbers in an object. Nothing
    is logged to CloudWatch: every execution's history is kept for 90 days, and a log's delivery
    asks for eight actions on every log of the account.
    """
    return {
        "StateMachineName": names.build_machine(environment),
        "StateMachineType": "STANDARD",
        "DefinitionString": json.dumps(definition, separators=(",", ":")),
        "Tags": [{"Key": "roundhouse-environment", "Value": environment.name}],
    }


def log_group_name(environment: EnvironmentSpec, route: str) -> str:
    """The log group of a project, by its build route."""
    return f"/aws/codebuild/{names.builder_project(environment, route)}"
