"""Endpoints as SageMaker's API shows them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from local_cloud.protocol.errors import present_fields
from local_cloud.sagemaker.definitions import containers, hosts_components
from local_cloud.sagemaker.hosting.endpoint import Endpoint
from local_cloud.sagemaker.hosting.fleet import VariantFleet

Record = Mapping[str, Any]
FindModel = Callable[[str], Record | None]


def summary(endpoint: Endpoint) -> Record:
    """Return an endpoint as lists show it."""
    return {
        "EndpointName": endpoint.name,
        "EndpointArn": endpoint.arn,
        "EndpointStatus": endpoint.status,
        "CreationTime": endpoint.created,
        "LastModifiedTime": endpoint.modified,
    }


def description(endpoint: Endpoint, find_model: FindModel) -> Record:
    """Return an endpoint in full; fields without a value are left out."""
    traffic = endpoint.traffic
    fleet = None if traffic is None else traffic.fleet
    variants = () if fleet is None else fleet.production.values()
    shadows = () if fleet is None else fleet.shadow.values()
    optional = {
        "FailureReason": endpoint.failure_reason,
        "LastDeploymentConfig": endpoint.deployment_config,
        "ProductionVariants": [_running(variant, find_model) for variant in variants],
        "ShadowProductionVariants": [_running(variant, find_model) for variant in shadows],
    }
    present = {field: value for field, value in optional.items() if value}
    return {**summary(endpoint), "EndpointConfigName": endpoint.config_name, **present}


def _running(variant: VariantFleet, find_model: FindModel) -> Record:
    types = Counter(instance.instance_type for instance in variant.instances)
    pools = [
        {"InstanceType": name, "CurrentInstanceCount": count}
        for name, count in sorted(types.items())
    ]
    has_pools = variant.spec.get("InstancePools") is not None
    return {
        "VariantName": variant.name,
        **present_fields(DeployedImages=_images(variant, find_model) or None),
        "CurrentWeight": variant.weight,
        "DesiredWeight": variant.weight,
        "CurrentInstanceCount": len(variant.instances),
        "DesiredInstanceCount": variant.desired,
        **({"InstancePools": pools} if has_pools and pools else {}),
        **present_fields(
            RoutingConfig=variant.spec.get("RoutingConfig"),
            ManagedInstanceScaling=variant.spec.get("ManagedInstanceScaling"),
        ),
    }


def _images(variant: VariantFleet, find_model: FindModel) -> list[Record]:
    """The images of the variant's models, resolved where the model names a digest."""
    if hosts_components(variant.spec):
        return []
    names = [instance.model_name for instance in variant.instances] or [variant.spec["ModelName"]]
    models = [model for name in dict.fromkeys(names) if (model := find_model(name)) is not None]
    images = dict.fromkeys(
        str(definition["Image"]) for model in models for definition in containers(model)
    )
    return [
        {"SpecifiedImage": image, **({"ResolvedImage": image} if "@sha256:" in image else {})}
        for image in images
    ]
