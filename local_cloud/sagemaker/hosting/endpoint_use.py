"""The instances of an account's endpoints, by instance type, as quotas count them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from local_cloud.sagemaker.checks import instance_types
from local_cloud.sagemaker.hosting.endpoint import Endpoint
from local_cloud.sagemaker.hosting.fleet import VariantFleet

Record = Mapping[str, Any]
VARIANTS = ("ProductionVariants", "ShadowProductionVariants")
BETWEEN_POOLS = " or "
"""Between the types of a variant with instance pools, which no quota of one type limits here."""


def running_instances(endpoints: Iterable[Endpoint], configs: Mapping[str, Record]) -> Counter[str]:
    """Return the instances that endpoints have or are starting."""
    counts: Counter[str] = Counter()
    for endpoint in endpoints:
        pending = () if endpoint.pending is None else (endpoint.pending.fleet,)
        fleets = dict.fromkeys((*endpoint.fleets, *pending))
        for fleet in fleets:
            for variant in fleet.variants:
                counts[variant_types(variant.spec)] += variant.desired
        if not fleets:
            counts += config_instances(configs.get(endpoint.config_name, {}))
    return counts


def config_instances(
    config: Record, present: Mapping[str, VariantFleet] | None = None
) -> Counter[str]:
    """Return the instances of a new fleet; variants of `present` keep its counts."""
    counts: Counter[str] = Counter()
    for variant in (variant for key in VARIANTS for variant in config.get(key) or ()):
        kept = (present or {}).get(variant["VariantName"])
        counts[variant_types(variant)] += (
            variant["InitialInstanceCount"] if kept is None else kept.desired
        )
    return counts


def variant_types(variant: Record) -> str:
    """Return the instance types of a variant as one key."""
    return BETWEEN_POOLS.join(instance_types(variant))
