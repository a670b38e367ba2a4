"""CloudFormation properties of an endpoint's model, endpoint config and rollout, as pure functions of its deployment."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from onboarding import names
from onboarding.deployment import VARIANT, Deployment
from onboarding.lock import LockEntry
from onboarding.manifest import Manifest
from onboarding.serve_environment import serve_environment
from onboarding.values import Rollout

DOWNLOAD_MIB_PER_SECOND = 20
START_UP_SECONDS = 60
SHORTEST_TIMEOUT, LONGEST_TIMEOUT = 60, 3600


def locked_entries(deployment: Deployment) -> tuple[LockEntry, ...]:
    """The lock entry of every target that has one."""
    return tuple(target.lock_entry for target in deployment.targets if target.lock_entry is not None)


def model_properties(deployment: Deployment, image_uri: str) -> dict[str, Any]:
    """An `AWS::SageMaker::Model` without its name and role."""
    network = deployment.environment.network
    container = _multi_model(deployment, image_uri) if deployment.multi_model else _single_model(deployment, image_uri)
    properties: dict[str, Any] = {"PrimaryContainer": container, "EnableNetworkIsolation": True}
    if network is not None:
        properties["VpcConfig"] = {"Subnets": list(network.subnet_ids), "SecurityGroupIds": list(network.security_group_ids)}
    return properties


def endpoint_config_properties(deployment: Deployment, model_name: str) -> dict[str, Any]:
    """An `AWS::SageMaker::EndpointConfig` without its name."""
    entries = locked_entries(deployment)
    variant: dict[str, Any] = {
        "VariantName": VARIANT,
        "ModelName": model_name,
        "InstanceType": deployment.instance_type.name,
        "InitialInstanceCount": deployment.endpoint.scaling.min,
        "InitialVariantWeight": 1,
        "ModelDataDownloadTimeoutInSeconds": download_timeout_seconds([entry.archive.size_bytes for entry in entries]),
        "ContainerStartupHealthCheckTimeoutInSeconds": start_up_timeout_seconds([entry.manifest for entry in entries]),
    }
    if deployment.inference_ami_version is not None:
        variant["InferenceAmiVersion"] = deployment.inference_ami_version
    if not deployment.multi_model:
        # A multi-model endpoint routes a target to the instance that has it loaded, which this would undo.
        variant["RoutingConfig"] = {"RoutingStrategy": "LEAST_OUTSTANDING_REQUESTS"}
    return {"ProductionVariants": [variant]}


def start_up_timeout_seconds(manifests: Sequence[Manifest]) -> int:
    """A minute for the container, and four times the slowest measured load; within SageMaker's 60 to 3600."""
    slowest = max((manifest.load_seconds for manifest in manifests), default=0.0)
    return _timeout(START_UP_SECONDS + 4 * slowest)


def download_timeout_seconds(sizes: Sequence[int]) -> int:
    """The largest archive at 20 MiB/s, and a minute; within SageMaker's 60 to 3600."""
    return _timeout(START_UP_SECONDS + max(sizes, default=0) / 2**20 / DOWNLOAD_MIB_PER_SECOND)


def deployment_config(rollout: Rollout, alarm_names: Sequence[str]) -> dict[str, Any]:
    """How a new version takes over, and the alarms that take it back."""
    policies: dict[Rollout, dict[str, Any]] = {
        "all-at-once": _blue_green({"Type": "ALL_AT_ONCE", "WaitIntervalInSeconds": 300}),
        "canary": _blue_green({"Type": "CANARY", "CanarySize": _percent(10), "WaitIntervalInSeconds": 300}),
        "linear": _blue_green({"Type": "LINEAR", "LinearStepSize": _percent(25), "WaitIntervalInSeconds": 120}),
        "rolling": {
            "RollingUpdatePolicy": {
                "MaximumBatchSize": _percent(25),
                "WaitIntervalInSeconds": 120,
                "MaximumExecutionTimeoutInSeconds": 7200,
            }
        },
    }
    return {**policies[rollout], "AutoRollbackConfiguration": {"Alarms": [{"AlarmName": name} for name in alarm_names]}}


def _single_model(deployment: Deployment, image_uri: str) -> dict[str, Any]:
    (target,) = deployment.targets
    (entry,) = locked_entries(deployment)
    pinned = {"ROUNDHOUSE_MANIFEST_SHA256": entry.archive.manifest_sha256}
    return {
        "Image": image_uri,
        "Mode": "SingleModel",
        "ModelDataUrl": f"s3://{names.artifact_bucket(deployment.environment)}/{names.engine_archive_path(target.engine_key)}",
        "Environment": {**pinned, **_triton(deployment, target.model.name)},
    }


def _multi_model(deployment: Deployment, image_uri: str) -> dict[str, Any]:
    return {
        "Image": image_uri,
        "Mode": "MultiModel",
        "ModelDataUrl": f"s3://{names.artifact_bucket(deployment.environment)}/{names.ENGINES_PREFIX}/",
        "Environment": _triton(deployment, None),
    }


def _triton(deployment: Deployment, model: str | None) -> dict[str, str]:
    """What Triton's `serve` is told; no model is a multi-model endpoint."""
    if deployment.server != "triton":
        return {}
    models = [target.model for target in deployment.targets]
    return serve_environment(
        model,
        version_compatible=deployment.instance_type.is_gpu and any(each.engine.version_compatible for each in models),
        response_cache=any(each.serving.response_cache for each in models),
    )


def _blue_green(routing: dict[str, Any]) -> dict[str, Any]:
    policy = {"TrafficRoutingConfiguration": routing, "TerminationWaitInSeconds": 120, "MaximumExecutionTimeoutInSeconds": 7200}
    return {"BlueGreenUpdatePolicy": policy}


def _percent(value: int) -> dict[str, Any]:
    return {"Type": "CAPACITY_PERCENT", "Value": value}


def _timeout(seconds: float) -> int:
    return min(LONGEST_TIMEOUT, max(SHORTEST_TIMEOUT, math.ceil(seconds)))
