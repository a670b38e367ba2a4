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
from roundhouse.aws.clients import Client, Clients, calling, object_bytes
from roundhouse.errors import RoundhouseError

MANIFEST_VARIABLE = "ROUNDHOUSE_MANIFEST_SHA256"
METRIC_PERIOD = datetime.timedelta(minutes=1)
METRIC_WAIT_SECONDS = 180.0
"""Metrics come a minute or two late."""
METRIC_POLL_SECONDS = 15.0


@dataclass(frozen=True, kw_only=True)
class ServedEngine:
    """An endpoint as SageMaker describes it: two that are equal serve alike."""

    endpoint_config: str
    instance_type: str
    instances: int


def served_engine(clients: Clients, deployment: Deployment, target: Target) -> ServedEngine:
    """Return the endpoint's single variant.

    Raises RoundhouseError when it serves another engine than the lock's, or not by one variant.
    """
    name = endpoint_name(deployment.environment, deployment.name)
    sagemaker = clients("sagemaker")

    def require(fault: str | None) -> None:
        if fault is not None:
            raise RoundhouseError(f"--record: {name}: {fault}.")

    require(_lock_fault(deployment, target))
    with calling("SageMaker"):
        endpoint = sagemaker.describe_endpoint(EndpointName=name)
        status = endpoint["EndpointStatus"]
        require(None if status == "InService" else f"it is {status}; wait until it is InService")
        config_name = str(endpoint["EndpointConfigName"])
        config = sagemaker.describe_endpoint_config(EndpointConfigName=config_name)
        require(_variants_fault(config))
        (variant,) = config["ProductionVariants"]
        model = sagemaker.describe_model(ModelName=variant["ModelName"])
    require(_engine_fault(clients, deployment, target, model["PrimaryContainer"]))
    (counts,) = endpoint["ProductionVariants"]
    instances, instance_type = int(counts["CurrentInstanceCount"]), str(variant["InstanceType"])
    require(_instances_fault(instances, int(counts["DesiredInstanceCount"]), deployment))
    if instance_type != target.instance_type.name:
        require(
            f"it runs on {instance_type}, and the files have {target.instance_type.name}; "
            f"run: roundhouse deploy --env {deployment.environment.name}"
        )
    return ServedEngine(
        endpoint_config=config_name, instance_type=instance_type, instances=instances
    )


def _lock_fault(deployment: Deployment, target: Target) -> str | None:
    if target.lock_entry is not None:
        return None
    command = f"build --env {deployment.environment.name} --model {target.model.name}"
    key = target.engine_key
    return f"the lock has no engine {key} to record it for; run: roundhouse {command}"


def _variants_fault(config: Any) -> str | None:
    variants = config["ProductionVariants"]
    if config.get("AsyncInferenceConfig") is not None:
        return "it is asynchronous: its queue hides how long an instance takes"
    if len(variants) != 1:
        own = "measure a model on an endpoint of its own"
        return f"{len(variants)} variants share its requests; {own}"
    if variants[0].get("InstancePools"):
        unknown = "which one answered is not known; measure each on its own"
        return f"it has several instance types, and {unknown}"
    return None


def _instances_fault(current: int, desired: int, deployment: Deployment) -> str | None:
    if current != desired or current < 1:
        desire = f"{desired} are desired; wait until they are the same"
        return f"it has {current} instances and {desire}"
    if deployment.multi_model and current > 1:
        uneven = "instances share its models unevenly; scale it to one and measure again"
        return f"{current} {uneven}"
    return None


def _engine_fault(
    clients: Clients, deployment: Deployment, target: Target, container: Any
) -> str | None:
    """Compare the archive's path and manifest digest, or a multi-model target's record in S3."""
    assert target.lock_entry is not None
    key, archive = target.engine_key, target.lock_entry.archive
    deploy = f"run: roundhouse deploy --env {deployment.environment.name}"
    if deployment.multi_model:
        bucket = artifact_bucket(deployment.environment)
        record = object_bytes(clients("s3"), bucket, engine_record_path(key))
        stored = None if record is None else LockEntry.model_validate_json(record).archive.sha256
        fault = f"the archive of engine {key} in S3 is not the lock's; {deploy}"
        return None if stored == archive.sha256 else fault
    served, locked = str(container["ModelDataUrl"]), engine_archive_path(key)
    if not served.endswith(f"/{locked}"):
        path = served.split("/", 3)[-1]
        return f"it serves {path}, and the lock's engine is {locked}; {deploy}"
    if container.get("Environment", {}).get(MANIFEST_VARIABLE) != archive.manifest_sha256:
        return f"it serves an archive of engine {key} that is not the lock's; {deploy}"
    return None


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
