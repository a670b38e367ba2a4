"""UpdateEndpoint: its request, and its refusals."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from local_cloud.protocol.errors import validation_error
from local_cloud.sagemaker.definitions import hosts_components, instance_types
from local_cloud.sagemaker.hosting.endpoint import Endpoint
from local_cloud.sagemaker.hosting.fleet import Fleet, VariantFleet

Record = Mapping[str, Any]
Wanted = Mapping[str, Record]
"""Of each variant the wanted weight and instance count, where they change."""
COUNT, WEIGHT = "DesiredInstanceCount", "DesiredWeight"


@dataclass(frozen=True, kw_only=True)
class UpdateRequest:
    """An UpdateEndpoint request; variants of the same name keep the `retained` properties."""

    endpoint_name: str
    config_name: str
    deployment_config: Mapping[str, Any] | None = None
    retained: frozenset[str] = frozenset()


def update_request(request: Mapping[str, Any], endpoint: Endpoint) -> UpdateRequest:
    """Read a request."""
    retains = bool(request.get("RetainAllVariantProperties"))
    properties = request.get("ExcludeRetainedVariantProperties") or ()
    excluded = {item["VariantPropertyType"] for item in properties}
    return UpdateRequest(
        endpoint_name=endpoint.name,
        config_name=str(request["EndpointConfigName"]),
        deployment_config=request.get("DeploymentConfig"),
        retained=frozenset({COUNT, WEIGHT} - excluded if retains else ()),
    )


def check_update(
    request: UpdateRequest, old: Fleet, config: Record, scaled_variants: Collection[str]
) -> None:
    """Refuse an update that SageMaker would refuse; `scaled_variants` are scalable targets."""
    if old.hosts_components != any(map(hosts_components, config["ProductionVariants"])):
        raise validation_error(
            f"AWS does not document whether endpoint {request.endpoint_name} can change between "
            "models of its variants and inference components: delete it, and create it again."
        )
    new = {variant["VariantName"]: variant for variant in config["ProductionVariants"]}
    if request.deployment_config and set(new) != set(old.production):
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


def keep_properties(request: UpdateRequest, old: Fleet, new: Fleet) -> None:
    """Give variants of a new fleet the present counts and weights of the same names."""
    before = _variants(old)
    for variant in new.variants:
        if variant.name in before and COUNT in request.retained:
            variant.desired = before[variant.name].desired
        if variant.name in before and WEIGHT in request.retained:
            variant.weight = before[variant.name].weight


def check_changes(endpoint: Endpoint, wanted: Wanted) -> None:
    """Refuse unknown variants, and zero instances behind a real-time endpoint."""
    if endpoint.traffic is None:
        raise validation_error(
            f'Cannot update endpoint "{endpoint.arn}" in status {endpoint.status}: it can only '
            "be deleted."
        )
    known = _variants(endpoint.traffic.fleet)
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
    assert endpoint.traffic is not None
    variants = _variants(endpoint.traffic.fleet)
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
