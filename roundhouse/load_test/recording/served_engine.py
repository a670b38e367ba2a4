"""What a deployed endpoint serves, by SageMaker's own word, and whether that is the lock's engine
on instances of one type.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from onboarding.deployment import Deployment, Target
from onboarding.lock import LockEntry
from onboarding.names import artifact_bucket, endpoint_name, engine_archive_path, engine_record_path
from roundhouse.aws.clients import Client, Clients, calling, object_bytes
from roundhouse.errors import RoundhouseError

MANIFEST_VARIABLE = "ROUNDHOUSE_MANIFEST_SHA256"


@dataclass(frozen=True, kw_only=True)
class Serving:
    """An endpoint as it stood: two that are equal served alike."""

    endpoint_config: str
    instance_type: str
    instances: int


def serving(clients: Clients, deployment: Deployment, target: Target) -> Serving:
    """The endpoint's one variant.

    Raises RoundhouseError when it serves another engine than the lock's, or not by one variant.
    """
    name = endpoint_name(deployment.environment, deployment.name)
    entry = target.lock_entry
    if entry is None:
        build = f"roundhouse build --env {deployment.environment.name} --model {target.model.name}"
        raise _refused(
            name, f"the lock has no engine {target.engine_key} to record it for; run: {build}"
        )
    sagemaker = clients("sagemaker")
    endpoint = _described(sagemaker, "endpoint", EndpointName=name)
    if endpoint["EndpointStatus"] != "InService":
        raise _refused(name, f"it is {endpoint['EndpointStatus']}; wait until it is InService")
    config = _described(
        sagemaker, "endpoint_config", EndpointConfigName=endpoint["EndpointConfigName"]
    )
    variant = _only_variant(name, config)
    model = _described(sagemaker, "model", ModelName=variant["ModelName"])
    _require_engine(clients, deployment, target, entry, model)
    instances = _instances(name, endpoint)
    if variant["InstanceType"] != target.instance_type.name:
        what = (
            f"it runs on {variant['InstanceType']}, and the files say {target.instance_type.name}"
        )
        raise _refused(name, f"{what}; run: roundhouse deploy --env {deployment.environment.name}")
    if deployment.multi_model and instances > 1:
        raise _refused(
            name,
            f"{instances} instances share its models unevenly; scale it to one and measure again",
        )
    return Serving(
        endpoint_config=str(endpoint["EndpointConfigName"]),
        instance_type=str(variant["InstanceType"]),
        instances=instances,
    )


def _described(sagemaker: Client, what: str, **wanted: str) -> Any:
    with calling("SageMaker"):
        return getattr(sagemaker, f"describe_{what}")(**wanted)


def _only_variant(name: str, config: Any) -> Any:
    variants = config["ProductionVariants"]
    if config.get("AsyncInferenceConfig") is not None:
        raise _refused(name, "it answers by way of a queue, which hides how long an instance takes")
    if len(variants) != 1:
        raise _refused(
            name,
            f"{len(variants)} variants share its requests; measure a model on an endpoint of its own",
        )
    if variants[0].get("InstancePools"):
        raise _refused(
            name,
            "it takes several instance types, and which one answered is not known; measure each on its own",
        )
    return variants[0]


def _instances(name: str, endpoint: Any) -> int:
    """Instances that are there; a count that is on its way elsewhere is none."""
    (variant,) = endpoint["ProductionVariants"]
    current, desired = int(variant["CurrentInstanceCount"]), int(variant["DesiredInstanceCount"])
    if current != desired or current < 1:
        raise _refused(
            name, f"it has {current} instances and wants {desired}; wait until that is the same"
        )
    return current


def _require_engine(
    clients: Clients, deployment: Deployment, target: Target, entry: LockEntry, model: Any
) -> None:
    """Of a single model the archive's path and its manifest's digest; of many, what lies under the
    target's key in S3.
    """
    name = endpoint_name(deployment.environment, deployment.name)
    deploy = f"run: roundhouse deploy --env {deployment.environment.name}"
    if deployment.multi_model:
        record = object_bytes(
            clients("s3"),
            artifact_bucket(deployment.environment),
            engine_record_path(target.engine_key),
        )
        found = None if record is None else LockEntry.model_validate_json(record).archive.sha256
        if found != entry.archive.sha256:
            raise _refused(
                name, f"the archive of engine {target.engine_key} in S3 is not the lock's; {deploy}"
            )
        return
    container = model["PrimaryContainer"]
    served, locked = str(container["ModelDataUrl"]), engine_archive_path(target.engine_key)
    if not served.endswith(f"/{locked}"):
        raise _refused(
            name,
            f"it serves {served.split('/', 3)[-1]}, and the lock's engine is {locked}; {deploy}",
        )
    digest = container.get("Environment", {}).get(MANIFEST_VARIABLE)
    if digest != entry.archive.manifest_sha256:
        raise _refused(
            name,
            f"it serves an archive of engine {target.engine_key} that is not the lock's; {deploy}",
        )


def _refused(name: str, why: str) -> RoundhouseError:
    return RoundhouseError(f"--record: {name}: {why}.")
