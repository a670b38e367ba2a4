"""UpdateEndpoint and UpdateEndpointWeightsAndCapacities: what they change, and their refusals."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from local_cloud.protocol.errors import validation_error
from local_cloud.sagemaker.definitions import hosts_components, instance_types
from local_cloud.sagemaker.hosting.endpoint import Endpoint
from local_cloud.sagemaker.hosting.fleet import Fleet, VariantFleet

Record = Mapping[str, Any]
Wanted = Mapping[str, Record]
"""Of each variant the wanted weight and instance count, where they change."""
COUNT, WEIGHT = "DesiredInstanceCount", "DesiredWeight"


def check_update(
    request: Record, old: Fleet, config: Record, scaled_variants: Collection[str]
) -> None:
    """Refuse an update that SageMaker would refuse; `scaled_variants` are scalable targets."""
    if old.hosts_components != any(map(hosts_components, config["ProductionVariants"])):
        raise validation_error(
            f"AWS does not document whether endpoint {request['EndpointName']} can change between "
            "models of its variants and inference components: delete it, and create it again."
        )
    new = {variant["VariantName"]: variant for variant in config["ProductionVariants"]}
    if request.get("DeploymentConfig") and set(new) != set(old.production):
        raise validation_error(
            "When doing a blue/green or rolling deployment, the new endpoint configuration must "
            "have the same variant names as the old endpoint configuration: found "
            f"{', '.join(sorted(new))}, was {', '.join(sorted(old.production))}."
        )
    for name in sorted(set(new) & set(scaled_variants) & set(old.production)):
        before, after = instance_types(old.production[name].spec), instance_types(new[name])
        if before != after:
            raise validation_error(
                f"The instance type of variant {name} cannot be changed from {', '.join(before)} "
                f"to {', '.join(after)} while it is registered as a scalable target: delete its "
                "scaling policies and deregister it first."
            )


def keep_properties(request: Record, old: Fleet, new: Fleet) -> None:
    """Give variants of a new fleet what the request retains of those of the same names."""
    if not request.get("RetainAllVariantProperties"):
        return
    properties = request.get("ExcludeRetainedVariantProperties") or ()
    excluded = {item["VariantPropertyType"] for item in properties}
    before = _variants(old)
    for variant in new.variants:
        present = before.get(variant.name)
        if present is not None and COUNT not in excluded:
            variant.desired = present.desired
        if present is not None and WEIGHT not in excluded:
            variant.weight = present.weight


def check_changes(endpoint: Endpoint, wanted: Wanted) -> None:
    """Refuse unknown variants, and zero instances behind a real-time endpoint."""
    known = _variants(endpoint.live_traffic().fleet)
    for name, change in wanted.items():
        if name not in known:
            raise validation_error(
                f'Could not find variant "{name}" of endpoint "{endpoint.arn}": it has '
                f"{', '.join(known)}."
            )
        if change.get(COUNT) == 0 and not endpoint.is_asynchronous:
            raise validation_error(
                f'DesiredInstanceCount of variant "{name}" must be greater than or equal to 1: '
                "only an asynchronous endpoint scales to zero."
            )


def apply_changes(endpoint: Endpoint, wanted: Wanted) -> None:
    """Start and stop instances, then set the weights; one failure puts all counts back."""
    variants = _variants(endpoint.live_traffic().fleet)
    before = {name: variants[name].desired for name in wanted}
    try:
        for name, change in wanted.items():
            variants[name].desired = change.get(COUNT, before[name])
            variants[name].fill()
            variants[name].shrink()
    except Exception:
        endpoint.become("RollingBack")
        for name, count in before.items():
            variants[name].desired = count
            variants[name].shrink()
        raise
    for name, change in wanted.items():
        variants[name].weight = change.get(WEIGHT, variants[name].weight)


def _variants(fleet: Fleet) -> Mapping[str, VariantFleet]:
    return {variant.name: variant for variant in fleet.variants}
