"""What a deployed endpoint serves, as SageMaker describes it, compared with the lock."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from onboarding.deployment import VARIANT, Deployment, Target
from onboarding.lock import LockEntry
from onboarding.names import artifact_bucket, endpoint_name, engine_archive_path, engine_record_path
from onboarding.text_generation.checkpoint_lock import CheckpointEntry
from onboarding.text_generation.generation_deployment import GenerationDeployment
from roundhouse.aws.clients import Client, Clients, calling, object_bytes
from roundhouse.errors import RoundhouseError

MANIFEST_VARIABLE = "ROUNDHOUSE_MANIFEST_SHA256"
IN_SERVICE = "InService"
METRIC_PERIOD = datetime.timedelta(minutes=1)
METRIC_WAIT_SECONDS = 180.0
"""Metrics come a minute or two late."""
METRIC_POLL_SECONDS = 15.0


@dataclass(frozen=True, kw_only=True)
class Served:
    """What answers, as SageMaker describes it: two that are equal serve alike."""

    name: str
    """Of an endpoint config, or of SageMaker's model, which follow from their content."""
    instance_type: str
    count: int
    """Of instances, or of an inference component's copies."""


def _refuse(endpoint: str, *faults: tuple[object, str]) -> None:
    for is_fault, text in faults:
        if is_fault:
            raise RoundhouseError(f"--record: {endpoint}: {text}.")


def _status_fault(status: str) -> tuple[bool, str]:
    return status != IN_SERVICE, f"it is {status}; wait until it is {IN_SERVICE}"


def _count_fault(current: int, desired: int, noun: str) -> tuple[bool, str]:
    return (
        current != desired or current < 1,
        f"it has {current} {noun} and {desired} are desired; wait until they are the same",
    )


def served_engine(clients: Clients, deployment: Deployment, target: Target) -> Served:
    """Return the endpoint's single variant.

    Raises RoundhouseError when it serves another engine than the lock's, or not by one variant.
    """
    environment = deployment.environment.name
    name = endpoint_name(deployment.environment, deployment.name)
    deploy = f"run: roundhouse deploy --env {environment}"
    unbuilt = f"the lock has no engine {target.engine_key} to record it for"
    build = f"run: roundhouse build --env {environment} --model {target.model.name}"
    _refuse(name, (target.lock_entry is None, f"{unbuilt}; {build}"))
    sagemaker = clients("sagemaker")
    with calling("SageMaker"):
        endpoint = sagemaker.describe_endpoint(EndpointName=name)
        _refuse(name, _status_fault(endpoint["EndpointStatus"]))
        config_name = str(endpoint["EndpointConfigName"])
        config = sagemaker.describe_endpoint_config(EndpointConfigName=config_name)
        variants = config["ProductionVariants"]
        _refuse(
            name,
            (
                config.get("AsyncInferenceConfig") is not None,
                "it is asynchronous: its queue hides how long an instance takes",
            ),
            (
                len(variants) != 1,
                f"{len(variants)} variants share its requests; measure a model on an endpoint of "
                "its own",
            ),
            (
                variants[0].get("InstancePools"),
                "it has several instance types, and which one answered is not known; measure each "
                "on its own",
            ),
        )
        (counts,), noun = endpoint["ProductionVariants"], "instances"
        current, desired = int(counts["CurrentInstanceCount"]), int(counts["DesiredInstanceCount"])
        served = str(variants[0].get("ModelName"))
        if deployment.is_component:
            (status, served, current, desired), noun = _component(sagemaker, name), "copies"
            _refuse(name, _status_fault(status))
        model = sagemaker.describe_model(ModelName=served)
    engine_fault = _engine_fault(clients, deployment, target, model["PrimaryContainer"])
    instance_type = str(variants[0]["InstanceType"])
    _refuse(
        name,
        (engine_fault, engine_fault),
        _count_fault(current, desired, noun),
        (
            deployment.multi_model and current > 1,
            f"{current} instances share its models unevenly; scale it to one and measure again",
        ),
        (
            instance_type != target.instance_type.name,
            f"it runs on {instance_type}, and the files have {target.instance_type.name}; {deploy}",
        ),
    )
    name = served if deployment.is_component else config_name
    return Served(name=name, instance_type=instance_type, count=current)


def _component(sagemaker: Client, name: str) -> tuple[str, str, int, int]:
    """Return a component's status, its model, and its copies, present and desired."""
    component = sagemaker.describe_inference_component(InferenceComponentName=name)
    runtime, status = component["RuntimeConfig"], component["InferenceComponentStatus"]
    counts = int(runtime["CurrentCopyCount"]), int(runtime["DesiredCopyCount"])
    return str(status), str(component["Specification"]["ModelName"]), *counts


def _engine_fault(clients: Clients, deployment: Deployment, target: Target, container: Any) -> str:
    """Compare the archive's path and manifest digest, or a multi-model target's record in S3."""
    assert target.lock_entry is not None
    key, archive = target.engine_key, target.lock_entry.archive
    deploy = f"run: roundhouse deploy --env {deployment.environment.name}"
    if deployment.multi_model:
        bucket = artifact_bucket(deployment.environment)
        record = object_bytes(clients("s3"), bucket, engine_record_path(key))
        stored = None if record is None else LockEntry.model_validate_json(record).archive.sha256
        fault = f"the archive of engine {key} in S3 is not the lock's; {deploy}"
        return "" if stored == archive.sha256 else fault
    path, locked = str(container["ModelDataUrl"]).split("/", 3)[-1], engine_archive_path(key)
    if path != locked:
        return f"it serves {path}, and the lock's engine is {locked}; {deploy}"
    if container.get("Environment", {}).get(MANIFEST_VARIABLE) != archive.manifest_sha256:
        return f"it serves an archive of engine {key} that is not the lock's; {deploy}"
    return ""


def gpu_utilization_percent(
    cloudwatch: Client,
    endpoint: str,
    gpus: int,
    begin: datetime.datetime,
    end: datetime.datetime,
    *,
    sleep: Callable[[float], None] = time.sleep,
    now: Callable[[], float] = time.monotonic,
) -> float | None:
    """Return the mean GPUUtilization of one GPU in the whole minutes between begin and end.

    None when no metric came, or no minute was whole. The metric counts 100 for each of the `gpus`
    of an instance.
    """
    start = begin.replace(second=0, microsecond=0) + METRIC_PERIOD
    last = end.replace(second=0, microsecond=0)
    until = now() + METRIC_WAIT_SECONDS
    dimensions = {"EndpointName": endpoint, "VariantName": VARIANT}
    while start < last:
        with calling("CloudWatch"):
            answer = cloudwatch.get_metric_statistics(
                Namespace="/aws/sagemaker/Endpoints",
                MetricName="GPUUtilization",
                Dimensions=[{"Name": name, "Value": value} for name, value in dimensions.items()],
                StartTime=start,
                EndTime=last,
                Period=int(METRIC_PERIOD.total_seconds()),
                Statistics=["Average"],
            )
        averages = [float(point["Average"]) for point in answer["Datapoints"]]
        is_late = now() >= until
        if len(averages) >= (last - start) // METRIC_PERIOD or (averages and is_late):
            return round(min(100.0, sum(averages) / len(averages) / gpus), 1)
        if is_late:
            return None
        sleep(METRIC_POLL_SECONDS)
    return None


def served_copies(
    clients: Clients, deployment: GenerationDeployment, entry: CheckpointEntry
) -> Served:
    """Return what answers behind the endpoint. Raises RoundhouseError for another checkpoint."""
    environment = deployment.environment
    name = endpoint_name(environment, deployment.name)
    sagemaker = clients("sagemaker")
    with calling("SageMaker"):
        endpoint = sagemaker.describe_endpoint(EndpointName=name)
        config = sagemaker.describe_endpoint_config(
            EndpointConfigName=endpoint["EndpointConfigName"]
        )
        (variant,), status = config["ProductionVariants"], endpoint["EndpointStatus"]
        own, model, current, desired = _component(sagemaker, name)
        status = status if own == IN_SERVICE else own
        container = sagemaker.describe_model(ModelName=model)["PrimaryContainer"]
    served = str(container["ModelDataSource"]["S3DataSource"]["S3Uri"]).split("/", 3)[-1]
    deploy = f"run: roundhouse deploy --env {environment.name}"
    other = f"it serves {served}, and the lock's checkpoint is {entry.prefix}; {deploy}"
    _refuse(
        name,
        _status_fault(status),
        _count_fault(current, desired, "copies"),
        (served != entry.prefix, other),
    )
    return Served(name=model, instance_type=str(variant["InstanceType"]), count=current)
