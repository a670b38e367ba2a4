"""What one instance of a variant can answer, derived from what the lock says was measured."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from onboarding.deployment import Deployment, Pool, Target, Variant
from onboarding.lock import ServedCapacity
from stacks.capacity.engine import Capacity, engine_capacity


def variant_capacity(deployment: Deployment, variant: Variant) -> Capacity | None:
    """The slowest target's on the slowest instance type; None when one was not measured as served.

    Any mix of requests may come, and the metric that scales is a mean over instances of every type.
    """
    capacities = [capacity for _, capacity in _target_capacities(deployment, variant)]
    known = [capacity for capacity in capacities if not isinstance(capacity, str)]
    if not known or len(known) < len(capacities):
        return None
    slowest = min(known, key=lambda capacity: capacity.requests_per_second)
    counts = ((len(variant.targets), "models"), (len(variant.pools), "instance types"))
    among = " on ".join(f"{count} {noun}" for count, noun in counts if count > 1)
    return Capacity(
        requests_per_second=slowest.requests_per_second,
        within_slo=all(capacity.within_slo for capacity in known),
        derivation=slowest.derivation + (f", the slowest of {among}" if among else ""),
    )


def capacity_warnings(deployment: Deployment, variant: Variant) -> Iterator[str]:
    """What is not known or not kept, one sentence each, with the way out."""
    scaled = "nothing scales on its requests"
    if deployment.is_component:
        scaled = "every request at once asks for a copy of its own"
    for pool, capacity in _target_capacities(deployment, variant):
        where = (
            f"Endpoint '{deployment.name}', variant {variant.name}, on {pool.instance_type.name}"
        )
        if isinstance(capacity, str):
            yield (f"{where}: {capacity}, so its capacity is not known and {scaled}.")
        elif not capacity.within_slo:
            yield f"{where} cannot keep its latency SLO: {capacity.derivation}."


def _target_capacities(
    deployment: Deployment, variant: Variant
) -> Iterator[tuple[Pool, Capacity | str]]:
    """Every engine on every instance type of a variant."""
    for pool in variant.pools:
        for target in pool.targets:
            yield pool, _target_capacity(deployment, target)


def _target_capacity(deployment: Deployment, target: Target) -> Capacity | str:
    """What was served counts before what the engine alone did; or why neither is known.

    At a looser SLO it still is the most that can be believed.
    """
    served, slo = served_capacity(deployment, target), deployment.endpoint.latency_slo_ms
    if served is None:
        return engine_capacity(deployment, target)
    rate = served.requests_per_second
    if slo is None or served.slo_ms <= slo:
        text = f"{target.model.name}: {rate:.10g} requests/s served ({measurement_text(served)})"
        return Capacity(requests_per_second=rate, within_slo=True, derivation=text)
    alone = engine_capacity(deployment, target)
    if isinstance(alone, str):
        return alone
    rows = served.rows_per_request
    text = alone.derivation if rows == 1 else f"{alone.derivation} / {rows} rows of a request"
    return replace(
        alone,
        requests_per_second=min(alone.requests_per_second / rows, rate),
        derivation=f"{text}; at most the {rate:.10g} requests/s served"
        f" ({measurement_text(served)})",
    )


def served_capacity(deployment: Deployment, target: Target) -> ServedCapacity | None:
    """The load test of an instance of the target's type with exactly this engine and server.

    None: not measured.
    """
    entry = target.lock_entry
    if entry is None or entry.capacity is None or entry.manifest.engine_key != target.engine_key:
        return None
    served = entry.capacity.get(target.instance_type.name)
    return (
        served
        if served is not None and served.server == deployment.variant_of(target).server
        else None
    )


def measurement_text(served: ServedCapacity) -> str:
    """How a load test measured a capacity."""
    rows = "" if served.rows_per_request == 1 else f", {served.rows_per_request} rows each"
    return (
        f"{served.tool}, {served.endpoint} on {served.instance_type}, {served.server}{rows}, "
        f"p{served.percentile:g} within {served.slo_ms:g} ms, {served.date}"
    )
