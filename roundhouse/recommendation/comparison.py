"""A job's recommendations beside our own measurements, and where they disagree."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from onboarding.platform import instance_types
from onboarding.prices import price
from roundhouse.compare.result import CellResult, read_result
from roundhouse.recommendation.result import JobRecord, Recommendation
from roundhouse.recommendation.subject import Subject

MINUTE = 60
MILLION = 1e6
TOLERANCE = 1.25
"""Two measurements further apart than this factor disagree; `compare` found spreads below it on a
quiet machine, and none is known of AWS.
"""
PRICE_TOLERANCE = 0.01


@dataclass(frozen=True, kw_only=True)
class OwnMeasurement:
    """What we know of the same engine on one instance type.

    `is_served`: by a load test of an endpoint, else derived from the engine's own benchmark.
    """

    invocations_per_minute: float
    latency_ms: float | None
    """p99 at that rate, or the SLO that bounded it."""
    is_served: bool
    derivation: str
    usd_per_hour: float | None
    target: float | None
    """Of InvocationsPerInstance, as scaling derives it."""
    target_derivation: str | None

    @property
    def usd_per_inference(self) -> float | None:
        """Of an instance at that rate."""
        if self.usd_per_hour is None:
            return None
        return self.usd_per_hour / MINUTE / self.invocations_per_minute


@dataclass(frozen=True, kw_only=True)
class ComparedRow:
    """One benchmark of a job beside ours; None: not measured."""

    recommendation: Recommendation
    own: OwnMeasurement | None
    holds_slo: bool | None
    """Whether the benchmark's latency, a mean, is within the SLO; None: one is not known."""
    disagreements: tuple[str, ...]

    @property
    def throughput_ratio(self) -> float | None:
        """The job's requests a minute by ours."""
        theirs = self.recommendation.invocations_per_minute
        if theirs is None or self.own is None:
            return None
        return theirs / self.own.invocations_per_minute


@dataclass(frozen=True, kw_only=True)
class ComparedJob:
    """A completed job with our measurements."""

    record: JobRecord
    model: str
    slo_ms: float | None
    rows: tuple[ComparedRow, ...]

    @property
    def headline(self) -> str:
        """What a reader takes away."""
        known = [row for row in self.rows if row.recommendation.invocations_per_minute is not None]
        if not known:
            return "No benchmark has a metric."
        holding = [row for row in known if row.holds_slo]
        if self.slo_ms is not None and not holding:
            return f"No benchmark's latency is within the SLO of {self.slo_ms:g} ms."
        best = min(holding or known, key=_cost_order)
        usd = best.recommendation.usd_per_inference
        cost = "a price that is not known" if usd is None else f"{usd * MILLION:,.4g} USD a million"
        slo = f", latency within {self.slo_ms:g} ms" if best.holds_slo else ""
        return (
            f"{best.recommendation.name}: {best.recommendation.invocations_per_minute:,.0f} "
            f"requests a minute{slo}, {cost}."
        )


def _cost_order(row: ComparedRow) -> tuple[bool, float, float]:
    item = row.recommendation
    rate = item.invocations_per_minute or 0.0
    return item.usd_per_inference is None, item.usd_per_inference or 0.0, -rate


def compare_with_own(subject: Subject, record: JobRecord, comparisons: Path) -> ComparedJob:
    """Return a job's rows beside ours.

    `comparisons`: the folder in which `roundhouse compare` keeps the cells that it measured.
    """
    slo = subject.deployment.endpoint.latency_slo_ms
    region = subject.deployment.environment.region
    rows = []
    for item in record.recommendations:
        own = None if item.variables else own_measurement(subject, item.instance_type, comparisons)
        hourly = price(region, "hosting", item.instance_type)
        rows.append(
            ComparedRow(
                recommendation=item,
                own=own,
                holds_slo=_is_within(item.latency_ms, slo),
                disagreements=tuple(_disagreements(item, own, slo, hourly)),
            )
        )
    return ComparedJob(record=record, model=subject.model, slo_ms=slo, rows=tuple(rows))


def _is_within(latency_ms: float | None, slo_ms: float | None) -> bool | None:
    return None if latency_ms is None or slo_ms is None else latency_ms <= slo_ms


def own_measurement(subject: Subject, name: str, comparisons: Path) -> OwnMeasurement | None:
    """Return what we know of the engine on an instance type.

    A recorded load test counts before a cell of `compare`, and that before the engine's own
    benchmark.
    """
    from stacks.capacity.variant import expected_latency, served_capacity, variant_capacity
    from stacks.scaling.targets import invocations_target

    instance = instance_types().get(name)
    if instance is None:
        return None
    deployment = subject.on(instance)
    variant = deployment.own
    served = served_capacity(deployment, variant.targets[0])
    capacity = variant_capacity(deployment, variant)
    target = invocations_target(deployment, variant)
    cell = None if served is not None else compared_cell(subject, name, comparisons)
    if cell is not None and cell.rate is not None:
        rate, derivation = cell.rate, f"roundhouse compare, {cell.name}, {cell.date}"
        latency = None if cell.knee is None else cell.knee.p99_ms
    elif capacity is None:
        return None
    else:
        rate, derivation = capacity.requests_per_second, capacity.derivation
        expected = expected_latency(deployment, variant)
        latency = None if expected is None else expected.milliseconds
        latency = latency if served is None else served.slo_ms
    return OwnMeasurement(
        invocations_per_minute=rate * MINUTE,
        latency_ms=latency,
        is_served=served is not None or cell is not None,
        derivation=derivation,
        usd_per_hour=price(deployment.environment.region, "hosting", name),
        target=None if target is None else target.value,
        target_derivation=None if target is None else target.derivation,
    )


def compared_cell(subject: Subject, instance_type: str, folder: Path) -> CellResult | None:
    """Return the newest cell of `compare` that is the model file as it stands; None: none is."""
    serving = subject.target.model.serving
    entry = subject.target.lock_entry
    as_it_stands = {
        "precision": None if entry is None else entry.manifest.precision,
        "runtime": None if entry is None else entry.manifest.runtime.name,
        "batching": "on",
        "instances": str(getattr(serving, "instances_per_gpu", 1)),
        "instance_type": instance_type,
    }
    found = [
        result
        for path in sorted(folder.glob("*.json"))
        if (result := read_result(folder, path.stem)) is not None
        and result.rate is not None
        and result.instance_type == instance_type
        and all(as_it_stands.get(axis) == value for axis, value in result.values)
    ]
    return max(found, key=lambda result: result.date or "", default=None)


def _disagreements(
    item: Recommendation, own: OwnMeasurement | None, slo: float | None, hourly: float | None
) -> Iterator[str]:
    if slo is not None and item.latency_ms is not None and item.latency_ms > slo:
        yield (
            f"its latency of {item.latency_ms:,.4g} ms is above the SLO of {slo:g} ms: its "
            "requests a minute are not to be planned with"
        )
    if (
        item.usd_per_hour is not None
        and hourly is not None
        and abs(item.usd_per_hour / hourly - 1) > PRICE_TOLERANCE
    ):
        yield (
            f"an hour costs {item.usd_per_hour:.4g} USD by the job and {hourly:.4g} by our prices; "
            "`make prices` reads AWS's list"
        )
    if own is None:
        return
    if item.invocations_per_minute:
        ratio = item.invocations_per_minute / own.invocations_per_minute
        if not 1 / TOLERANCE <= ratio <= TOLERANCE:
            kind = "a load test's" if own.is_served else "what the engine's benchmark leaves"
            yield (
                f"{item.invocations_per_minute:,.0f} requests a minute are {ratio:.2f} of ours "
                f"({own.invocations_per_minute:,.0f}, {kind}): ours is an open loop within the "
                "SLO's p99, theirs users who wait for answers, at the plateau"
            )
    is_beyond_slo = _is_within(item.latency_ms, slo) is False
    if not is_beyond_slo and _is_within(item.latency_ms, own.latency_ms) is False:
        yield (
            f"its mean latency of {item.latency_ms:,.4g} ms is above our p99, at most "
            f"{own.latency_ms:,.4g} ms"
        )
    theirs, ours = item.usd_per_inference, own.usd_per_inference
    if theirs is not None and ours is not None and not 1 / TOLERANCE <= theirs / ours <= TOLERANCE:
        yield (
            f"a million requests cost {theirs * MILLION:,.4g} USD by the job and "
            f"{ours * MILLION:,.4g} by ours"
        )
