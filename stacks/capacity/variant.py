"""What one instance of a variant can answer, derived from what the lock says was measured."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from onboarding.deployment import Deployment, Pool, Target, Variant
from stacks.capacity.engine import EngineRate, engine_rate
from stacks.capacity.served import capped, served


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """Requests a second of one instance, and how that was derived.

    `within_slo`: nothing that the variant serves misses it.
    """

    requests_per_second: float
    within_slo: bool
    derivation: str


@dataclass(frozen=True, kw_only=True)
class TargetCapacity:
    """What one instance type answers with one engine: `rate`, or None and why it is not known."""

    pool: Pool
    target: Target
    rate: EngineRate | None
    unknown: str | None = None


def variant_capacity(deployment: Deployment, variant: Variant) -> Capacity | None:
    """The slowest target's on the slowest instance type; None when a target was not measured as it
    is served.

    Any mix of requests may come, and the metric that scales is a mean over instances of every type.
    """
    rates = [each.rate for each in target_capacities(deployment, variant)]
    known = [rate for rate in rates if rate is not None]
    if not known or len(known) < len(rates):
        return None
    slowest = min(known, key=lambda rate: rate.requests_per_second)
    return Capacity(
        requests_per_second=slowest.requests_per_second,
        within_slo=all(rate.within_slo for rate in known),
        derivation=slowest.derivation + _slowest_of(variant),
    )


def instance_capacity(deployment: Deployment) -> Capacity | None:
    """Of the endpoint's own variant."""
    return variant_capacity(deployment, deployment.own)


def target_capacities(deployment: Deployment, variant: Variant) -> tuple[TargetCapacity, ...]:
    """Every engine on every instance type of a variant."""
    return tuple(
        _target_capacity(deployment, pool, target)
        for pool in variant.pools
        for target in pool.targets
    )


def capacity_warnings(deployment: Deployment, variant: Variant) -> Iterator[str]:
    """What is not known or not kept, one sentence each, with the way out."""
    for each in target_capacities(deployment, variant):
        where = f"Endpoint '{deployment.name}', variant {variant.name}, on {each.pool.instance_type.name}"
        if each.rate is None:
            yield f"{where}: {each.unknown}, so its capacity is not known and nothing scales on its requests."
        elif not each.rate.within_slo:
            yield f"{where} cannot keep its latency SLO: {each.rate.derivation}."


def _target_capacity(deployment: Deployment, pool: Pool, target: Target) -> TargetCapacity:
    """What was served counts before what the engine alone did; at a looser SLO it still is the most
    that can be believed.
    """
    measured, slo = served(deployment, target), deployment.endpoint.latency_slo_ms
    if measured is not None and (slo is None or measured.slo_ms <= slo):
        rate = EngineRate(
            requests_per_second=measured.requests_per_second,
            within_slo=True,
            derivation=f"{target.model.name}: {measured.requests_per_second:.10g} requests/s served ({measured.told})",
        )
        return TargetCapacity(pool=pool, target=target, rate=rate)
    found = engine_rate(deployment, target)
    if isinstance(found, str):
        return TargetCapacity(pool=pool, target=target, rate=None, unknown=found)
    return TargetCapacity(
        pool=pool, target=target, rate=found if measured is None else capped(found, measured)
    )


def _slowest_of(variant: Variant) -> str:
    """Says what the slowest was taken from, where there was a choice."""
    types, models = len(variant.pools), len(variant.targets)
    among = [
        f"{count} {what}"
        for count, what in ((models, "models"), (types, "instance types"))
        if count > 1
    ]
    return f", the slowest of {' on '.join(among)}" if among else ""
