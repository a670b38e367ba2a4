"""UpdateEndpoint: its request, its refusals, and the properties that the new fleet retains."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from local_cloud.protocol.errors import validation_error
from local_cloud.sagemaker.checks import instance_types
from local_cloud.sagemaker.hosting.endpoint import Endpoint
from local_cloud.sagemaker.hosting.fleet import Fleet, VariantFleet
from local_cloud.sagemaker.hosting.rollout import check_deployment

Config = Mapping[str, Any]
COUNT, WEIGHT = "DesiredInstanceCount", "DesiredWeight"


@dataclass(frozen=True, kw_only=True)
class UpdateRequest:
    """An UpdateEndpoint request.

    `retained` names the properties that variants of the same name keep.
    """

    endpoint_name: str
    config_name: str
    deployment_config: Mapping[str, Any] | None = None
    retained: frozenset[str] = frozenset()


def update_request(request: Mapping[str, Any], endpoint: Endpoint) -> UpdateRequest:
    """Reads a request; a deployment config that is to be reused is the endpoint's last one."""
    retains = bool(request.get("RetainAllVariantProperties"))
    excluded = {
        retained["VariantPropertyType"]
        for retained in request.get("ExcludeRetainedVariantProperties") or ()
    }
    if excluded and not retains:
        raise validation_error(
            "ExcludeRetainedVariantProperties can only be used when RetainAllVariantProperties "
            "is set to true."
        )
    reuses = bool(request.get("RetainDeploymentConfig"))
    return UpdateRequest(
        endpoint_name=endpoint.name,
        config_name=str(request["EndpointConfigName"]),
        deployment_config=endpoint.deployment_config if reuses else request.get("DeploymentConfig"),
        retained=frozenset({COUNT, WEIGHT} - excluded if retains else ()),
    )


def check_update(
    request: UpdateRequest, old: Fleet, config: Config, scaled_variants: Collection[str]
) -> None:
    """Refuses an update that SageMaker would refuse.

    `scaled_variants` are registered as scalable targets.
    """
    new = {variant["VariantName"]: variant for variant in config["ProductionVariants"]}
    retained = {
        name: old.production[name].desired
        for name in new
        if name in old.production and COUNT in request.retained
    }
    counts = {
        name: int(variant["InitialInstanceCount"]) for name, variant in new.items()
    } | retained
    check_deployment(request.deployment_config, counts)
    if request.deployment_config and set(new) != set(old.production):
        raise validation_error(
            "When doing a blue/green or rolling deployment, the new endpoint configuration must "
            "have the same variant names as "
            f"the old endpoint configuration: found {', '.join(sorted(new))}, was "
            f"{', '.join(sorted(old.production))}."
        )
    for name in sorted(set(new) & set(scaled_variants) & set(old.production)):
        was, becomes = instance_types(old.production[name].spec), instance_types(new[name])
        if was != becomes:
            raise validation_error(
                f"The instance type of variant {name} cannot be changed from {', '.join(was)} to "
                f"{', '.join(becomes)} while it "
                "is registered as a scalable target: delete its scaling policies and deregister "
                "it first."
            )


def keep_properties(request: UpdateRequest, old: Fleet, new: Fleet) -> None:
    """Gives variants of a new fleet the present counts and weights of the same names."""
    before = {variant.name: variant for variant in old.variants}
    for variant in new.variants:
        if variant.name in before and COUNT in request.retained:
            variant.desired = before[variant.name].desired
        if variant.name in before and WEIGHT in request.retained:
            variant.weight = before[variant.name].weight


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A variant's wanted weight and instance count; None leaves it as it is."""

    weight: float | None = None
    count: int | None = None


def wanted_changes(requested: Sequence[Mapping[str, Any]]) -> Mapping[str, Wanted]:
    """What a request wants of each variant; one that it names twice is refused."""
    names = [str(item["VariantName"]) for item in requested]
    if len(set(names)) != len(names):
        raise validation_error(
            f"DesiredWeightsAndCapacities must name each variant once, found {', '.join(names)}."
        )
    return {
        name: Wanted(weight=each.get("DesiredWeight"), count=each.get("DesiredInstanceCount"))
        for name, each in zip(names, requested, strict=True)
    }


def check_changes(endpoint: Endpoint, wanted: Mapping[str, Wanted]) -> None:
    """Refuses unknown variants, and zero instances behind a real-time endpoint."""
    if endpoint.traffic is None:
        raise validation_error(
            f'Cannot update endpoint "{endpoint.arn}" in status {endpoint.status}: it can only '
            "be deleted."
        )
    known = _variants(endpoint.traffic.fleet)
    for name, each in wanted.items():
        if name not in known:
            raise validation_error(
                f'Could not find variant "{name}" of endpoint "{endpoint.arn}": it has '
                f"{', '.join(known)}."
            )
        if each.count == 0 and not endpoint.is_asynchronous:
            raise validation_error(
                f'DesiredInstanceCount of variant "{name}" must be greater than or equal to 1: '
                "only an asynchronous endpoint scales to zero."
            )


def apply_changes(endpoint: Endpoint, *, wanted: Mapping[str, Wanted]) -> None:
    """Starts and stops instances until the counts are as wanted, then sets the weights.

    One failure puts all counts back.
    """
    assert endpoint.traffic is not None
    variants = _variants(endpoint.traffic.fleet)
    before = {name: variants[name].desired for name in wanted}
    try:
        for name, each in wanted.items():
            _resize(variants[name], before[name] if each.count is None else each.count)
    except Exception:
        endpoint.become("RollingBack")
        for name, count in before.items():
            variants[name].desired = count
            variants[name].shrink()
        raise
    for name, each in wanted.items():
        if each.weight is not None:
            variants[name].weight = each.weight


def _resize(variant: VariantFleet, count: int) -> None:
    variant.desired = count
    variant.fill()
    variant.shrink()


def _variants(fleet: Fleet) -> Mapping[str, VariantFleet]:
    return {variant.name: variant for variant in fleet.variants}
