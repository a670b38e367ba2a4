"""What UpdateEndpoint asks for, what it refuses, and which of the old fleet's properties the new
one keeps.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from local_cloud.aws_error import validation_error
from local_cloud.config_checks import instance_types
from local_cloud.endpoint import Endpoint
from local_cloud.fleet import Fleet
from local_cloud.rollout import check_deployment

Config = Mapping[str, Any]
COUNT, WEIGHT = "DesiredInstanceCount", "DesiredWeight"


@dataclass(frozen=True, kw_only=True)
class UpdateRequest:
    """An UpdateEndpoint request; `retained` names the properties that variants of the same name
    keep.
    """

    endpoint_name: str
    config_name: str
    deployment_config: Mapping[str, Any] | None = None
    retained: frozenset[str] = frozenset()


def update_request(request: Mapping[str, Any], endpoint: Endpoint) -> UpdateRequest:
    """Reads a request; a deployment config that is to be reused is the endpoint's last one."""
    retains = bool(request.get("RetainAllVariantProperties"))
    excluded = {
        each["VariantPropertyType"]
        for each in request.get("ExcludeRetainedVariantProperties") or ()
    }
    if excluded and not retains:
        raise validation_error(
            "ExcludeRetainedVariantProperties can only be used when RetainAllVariantProperties is set to true."
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
    """Refuses an update that SageMaker would refuse; `scaled_variants` are registered as scalable
    targets.
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
            "When doing a blue/green or rolling deployment, the new endpoint configuration must have the same variant names as "
            f"the old endpoint configuration: found {', '.join(sorted(new))}, was {', '.join(sorted(old.production))}."
        )
    for name in sorted(set(new) & set(scaled_variants) & set(old.production)):
        was, becomes = instance_types(old.production[name].spec), instance_types(new[name])
        if was != becomes:
            raise validation_error(
                f"The instance type of variant {name} cannot be changed from {', '.join(was)} to {', '.join(becomes)} while it "
                "is registered as a scalable target: delete its scaling policies and deregister it first."
            )


def keep_properties(request: UpdateRequest, old: Fleet, new: Fleet) -> None:
    """Gives the variants of a new fleet the counts and weights that those of the same name have
    now.
    """
    before = {variant.name: variant for variant in old.variants}
    for variant in new.variants:
        if variant.name in before and COUNT in request.retained:
            variant.desired = before[variant.name].desired
        if variant.name in before and WEIGHT in request.retained:
            variant.weight = before[variant.name].weight
