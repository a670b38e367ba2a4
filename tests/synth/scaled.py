"""Deployments with measured capacities, further instance types and further variants."""

from __future__ import annotations

import dataclasses
from typing import Any

from onboarding.deployment import Deployment, Pool, Target, Variant
from onboarding.lock import ServedCapacity
from onboarding.platform import instance_types
from stacks.capacity.engine import Capacity
from stacks.capacity.variant import variant_capacity
from tests.synth.deployments import with_fields, with_targets


def instance_capacity(deployment: Deployment) -> Capacity | None:
    """Capacity of an instance of the endpoint's own variant."""
    return variant_capacity(deployment, deployment.own)


def served_capacity(rate: float, **fields: Any) -> ServedCapacity:
    """A recorded load test of one instance."""
    given: dict[str, Any] = {
        "requests_per_second": rate,
        "slo_ms": 50.0,
        "instance_type": "ml.g5.xlarge",
        "server": "triton",
    }
    given |= {
        "endpoint": "dev-sentence-embedder",
        "date": "2026-11-21",
        "tool": "roundhouse bench 0.1.0",
    }
    return ServedCapacity(**{**given, **fields})


def with_served(deployment: Deployment, rate: float, **fields: Any) -> Deployment:
    """A deployment whose every engine has a measured capacity on its own instance type."""

    def with_capacity(target: Target) -> Target:
        assert target.lock_entry is not None
        found = served_capacity(rate, **{"instance_type": target.instance_type.name, **fields})
        entry = target.lock_entry.model_copy(update={"capacity": {found.instance_type: found}})
        return dataclasses.replace(target, lock_entry=entry)

    return with_targets(deployment, with_capacity)


def with_own_pools(deployment: Deployment, *instances: str) -> Deployment:
    """A deployment whose own variant is served by these types, each with engines of the first
    type's lock entries.
    """
    pools = []
    for priority, name in enumerate(instances, 1):
        instance = instance_types()[name]
        targets = tuple(
            dataclasses.replace(target, instance_type=instance) for target in deployment.own.targets
        )
        pools.append(Pool(instance_type=instance, priority=priority, targets=targets))
    return with_own(deployment, pools=tuple(pools))


def with_own(deployment: Deployment, **fields: Any) -> Deployment:
    """A deployment whose own variant has other fields."""
    return with_fields(
        deployment,
        variants=(dataclasses.replace(deployment.own, **fields), *deployment.variants[1:]),
    )


def with_variant(deployment: Deployment, name: str, **fields: Any) -> Deployment:
    """A deployment with a further variant like its own."""
    joined = dataclasses.replace(deployment.own, name=name, **fields)
    return with_fields(deployment, variants=(*deployment.variants, joined))


def variant(deployment: Deployment, name: str) -> Variant:
    """A variant by name."""
    return next(item for item in deployment.variants if item.name == name)


def with_serving(deployment: Deployment, **fields: Any) -> Deployment:
    """A deployment whose models are served otherwise; keys stay as they are."""

    def with_settings(target: Target) -> Target:
        serving = target.model.serving.model_copy(update=fields)
        return dataclasses.replace(
            target, model=target.model.model_copy(update={"serving": serving})
        )

    return with_targets(deployment, with_settings)
