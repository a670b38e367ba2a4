"""What requests for models and endpoint configs define: variants, models, instance types; pure.

Limits of what they define are onboarding's: the local cloud checks the API model and what exists.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Request = Mapping[str, Any]


def all_variants(config: Request) -> tuple[Request, ...]:
    """Return production and shadow variants of an endpoint config."""
    return (*config["ProductionVariants"], *(config.get("ShadowProductionVariants") or ()))


def hosts_components(variant: Request) -> bool:
    """Whether a variant names no model: its instances take copies of inference components."""
    return variant.get("ModelName") is None


def model_names(variant: Request) -> tuple[str, ...]:
    """Return every model that a variant may start: its own and those of its instance pools."""
    overrides = [pool.get("ModelNameOverride") for pool in variant.get("InstancePools") or ()]
    return tuple(name for name in (variant.get("ModelName"), *overrides) if name is not None)


def ordered_pools(variant: Request) -> tuple[Request, ...]:
    """Return a variant's instance pools by priority; a variant without pools is one pool."""
    pools = variant.get("InstancePools")
    if pools is None:
        return ({"InstanceType": variant["InstanceType"], "Priority": 1},)
    return tuple(sorted(pools, key=lambda pool: int(pool["Priority"])))


def instance_types(variant: Request) -> tuple[str, ...]:
    """Return the instance types that a variant may run on, by priority."""
    return tuple(pool["InstanceType"] for pool in ordered_pools(variant))


def containers(request: Request) -> tuple[Request, ...]:
    """Return a model's container definitions, from either field. Raises KeyError without any."""
    primary = request.get("PrimaryContainer")
    return tuple(request["Containers"]) if primary is None else (primary,)
