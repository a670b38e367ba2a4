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
    environment, expected = deployment.environment.name, target.instance_type.name
    if target.lock_entry is None:
        raise _refusal(
            name,
            f"the lock has no engine {target.engine_key} to record it for; "
            f"run: roundhouse build --env {environment} --model {target.model.name}",
        )
    sagemaker = clients("sagemaker")
    with calling("SageMaker"):
        endpoint = sagemaker.describe_endpoint(EndpointName=name)
        status = endpoint["EndpointStatus"]
        if status != "InService":
            raise _refusal(name, f"it is {status}; wait until it is InService")
        config_name = str(endpoint["EndpointConfigName"])
        config = sagemaker.describe_endpoint_config(EndpointConfigName=config_name)
        variant = _single_variant(name, config)
        model = sagemaker.describe_model(ModelName=variant["ModelName"])
    _require_engine(clients, deployment, target, target.lock_entry, model)
    instances = _instances(name, endpoint)
    if variant["InstanceType"] != expected:
        raise _refusal(
            name,
            f"it runs on {variant['InstanceType']}, and the files have {expected}; "
            f"run: roundhouse deploy --env {environment}",
        )
    if deployment.multi_model and instances > 1:
        raise _refusal(
            name,
            f"{instances} instances share its models unevenly; scale it to one and measure again",
        )
    return ServedEngine(
        endpoint_config=config_name,
        instance_type=str(variant["InstanceType"]),
        instances=instances,
    )


def _single_variant(name: str, config: Any) -> Any:
    variants = config["ProductionVariants"]
    if config.get("AsyncInferenceConfig") is not None:
        raise _refusal(name, "it is asynchronous: its queue hides how long an instance takes")
    if len(variants) != 1:
        raise _refusal(
            name,
            f"{len(variants)} variants share its requests; measure a model on an endpoint of "
            "its own",
        )
    if variants[0].get("InstancePools"):
        raise _refusal(
            name,
            "it has several instance types, and which one answered is not known; "
            "measure each on its own",
        )
    return variants[0]


def _instances(name: str, endpoint: Any) -> int:
    (variant,) = endpoint["ProductionVariants"]
    current, desired = int(variant["CurrentInstanceCount"]), int(variant["DesiredInstanceCount"])
    if current != desired or current < 1:
        raise _refusal(
            name,
            f"it has {current} instances and {desired} are desired; wait until they are the same",
        )
    return current


def _require_engine(
    clients: Clients, deployment: Deployment, target: Target, entry: LockEntry, model: Any
) -> None:
    """Compare the archive's path and manifest digest, or a multi-model target's record in S3."""
    name = endpoint_name(deployment.environment, deployment.name)
    deploy = f"run: roundhouse deploy --env {deployment.environment.name}"
    if deployment.multi_model:
        bucket = artifact_bucket(deployment.environment)
        record = object_bytes(clients("s3"), bucket, engine_record_path(target.engine_key))
        stored = None if record is None else LockEntry.model_validate_json(record).archive.sha256
        if stored != entry.archive.sha256:
            raise _refusal(
                name, f"the archive of engine {target.engine_key} in S3 is not the lock's; {deploy}"
            )
        return
    container = model["PrimaryContainer"]
    served, locked = str(container["ModelDataUrl"]), engine_archive_path(target.engine_key)
    if not served.endswith(f"/{locked}"):
        path = served.split("/", 3)[-1]
        raise _refusal(name, f"it serves {path}, and the lock's engine is {locked}; {deploy}")
    if container.get("Environment", {}).get(MANIFEST_VARIABLE) != entry.archive.manifest_sha256:
        raise _refusal(
            name,
            f"it serves an archive of engine {target.engine_key} that is not the lock's; {deploy}",
        )


def _refusal(name: str, reason: str) -> RoundhouseError:
    return RoundhouseError(f"--record: {name}: {reason}.")


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
