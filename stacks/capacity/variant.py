"""What one instance of a variant can answer, derived from what the lock says was measured."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from onboarding.deployment import Deployment, Pool, Target, Variant
from onboarding.lock import ServedCapacity
from stacks.capacity.engine import EngineRate, best_record, engine_rate, latency_ms


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
    """The slowest target's on the slowest instance type.

    None when a target was not measured as it is served. Any mix of requests may come, and the
    metric that scales is a mean over instances of every type.
    """
    rates = [capacity.rate for capacity in target_capacities(deployment, variant)]
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
    for capacity in target_capacities(deployment, variant):
        where = (
            f"Endpoint '{deployment.name}', variant {variant.name}, on"
            f" {capacity.pool.instance_type.name}"
        )
        if capacity.rate is None:
            yield (
                f"{where}: {capacity.unknown}, so its capacity is not known and nothing scales "
                "on its"
                " requests."
            )
        elif not capacity.rate.within_slo:
            yield f"{where} cannot keep its latency SLO: {capacity.rate.derivation}."


def _target_capacity(deployment: Deployment, pool: Pool, target: Target) -> TargetCapacity:
    """What was served counts before what the engine alone did.

    At a looser SLO it still is the most that can be believed.
    """
    measured, slo = served_capacity(deployment, target), deployment.endpoint.latency_slo_ms
    if measured is not None and (slo is None or measured.slo_ms <= slo):
        rate = EngineRate(
            requests_per_second=measured.requests_per_second,
            within_slo=True,
            derivation=(
                f"{target.model.name}: {measured.requests_per_second:.10g} requests/s served"
                f" ({measured.explanation})"
            ),
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


@dataclass(frozen=True, kw_only=True)
class Served:
    """A load test's outcome that fits a deployment; `explanation` says how it was measured."""

    requests_per_second: float
    rows_per_request: int
    slo_ms: float
    gpu_utilization_percent: float | None
    explanation: str


def served_capacity(deployment: Deployment, target: Target) -> Served | None:
    """What an instance of the target's type answered with exactly this engine, on the same server.

    None: not measured.
    """
    entry = target.lock_entry
    if entry is None or entry.capacity is None or entry.manifest.engine_key != target.engine_key:
        return None
    found = entry.capacity.get(target.instance_type.name)
    if found is None or found.server != deployment.server:
        return None
    return Served(
        requests_per_second=found.requests_per_second,
        rows_per_request=found.rows_per_request,
        slo_ms=found.slo_ms,
        gpu_utilization_percent=found.gpu_utilization_percent,
        explanation=_measurement_text(found),
    )


def capped(rate: EngineRate, measured: Served) -> EngineRate:
    """The engine's own rate at a stricter SLO, in served requests, at most the served rate."""
    rows = measured.rows_per_request
    least = min(rate.requests_per_second / rows, measured.requests_per_second)
    alone = rate.derivation if rows == 1 else f"{rate.derivation} / {rows} rows of a request"
    bound = (
        f"at most the {measured.requests_per_second:.10g} requests/s served "
        f"({measured.explanation})"
    )
    return EngineRate(
        requests_per_second=least, within_slo=rate.within_slo, derivation=f"{alone}; {bound}"
    )


def _measurement_text(found: ServedCapacity) -> str:
    rows = "" if found.rows_per_request == 1 else f", {found.rows_per_request} rows each"
    return (
        f"{found.tool}, {found.endpoint} on {found.instance_type}, {found.server}{rows}, "
        f"p{found.percentile:g} within {found.slo_ms:g} ms, {found.date}"
    )


DRIFT_FACTOR = 1.5


@dataclass(frozen=True, kw_only=True)
class ExpectedLatency:
    """The longest that an answer should take, p99, in milliseconds, and how that was derived."""

    milliseconds: float
    derivation: str


@dataclass(frozen=True, kw_only=True)
class DriftLimit:
    """Whole milliseconds, and how they were derived."""

    milliseconds: int
    derivation: str


def expected_latency(deployment: Deployment, variant: Variant) -> ExpectedLatency | None:
    """The slowest target's on the slowest instance type, behind the batch under way.

    None when one was not measured there.
    """
    found = [_of_target(deployment, target) for pool in variant.pools for target in pool.targets]
    known = [item for item in found if item is not None]
    if not known or len(known) < len(found):
        return None
    return max(known, key=lambda entry: entry.milliseconds)


def drift_limit(deployment: Deployment, variant: Variant) -> DriftLimit | None:
    """Half as much again as expected, at most halfway from there to the SLO.

    None where nothing is expected within the SLO.
    """
    expected, slo = expected_latency(deployment, variant), deployment.endpoint.latency_slo_ms
    if expected is None:
        return None
    limit, explanation = (
        expected.milliseconds * DRIFT_FACTOR,
        f"{DRIFT_FACTOR:g} x what was expected of {expected.derivation}",
    )
    if slo is not None and (halfway := (expected.milliseconds + slo) / 2) < limit:
        limit, explanation = (
            halfway,
            f"halfway to the SLO of {slo:g} ms from what was expected of {expected.derivation}",
        )
    whole = math.ceil(limit)
    return (
        None
        if slo is not None and whole >= slo
        else DriftLimit(milliseconds=whole, derivation=explanation)
    )


def _of_target(deployment: Deployment, target: Target) -> ExpectedLatency | None:
    record = best_record(deployment, target)
    if isinstance(record, str):
        return None
    expected = latency_ms(deployment, target, record.p99_ms)
    shape = f"batch {record.batch}" + (
        "" if record.sequence is None else f" of {record.sequence} tokens"
    )
    explanation = (
        f"{target.model.name} at {shape}, p99 measured {record.p99_ms:g} ms, {expected:g} ms behind"
        " the batch under way"
    )
    return ExpectedLatency(milliseconds=expected, derivation=explanation)
