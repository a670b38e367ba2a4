"""The result of a load test: what its report, its JSON and the recording of a capacity read."""

from __future__ import annotations

import datetime
import platform
from dataclasses import asdict, dataclass, replace
from typing import Any

from engine_build import machine
from engine_build.card.render import milliseconds, per_second
from roundhouse.load_test.load_test import LoadTest, Measured
from roundhouse.load_test.measurement import Latencies, Measurement, exact_percentile
from roundhouse.load_test.options import Loop
from roundhouse.load_test.saturation import (
    ANSWERED_SHARE,
    Outcome,
    Verdict,
    bounds,
    is_exact,
    tool_limit,
)
from roundhouse.text import quantity

VERSION = 2
"""Of the JSON's layout."""
PERCENTILES = (50.0, 90.0, 95.0, 99.0, 99.9, 99.99)
HEADLINE_PERCENTILES = ("p50", "p95", "p99")
Numbers = dict[str, float | None]
"""Milliseconds by percentile's name; None: too few samples."""


@dataclass(frozen=True, kw_only=True)
class Circumstances:
    """Where, when and by which Python something was measured."""

    machine: str
    date: str
    python: str


def circumstances() -> Circumstances:
    """Describe this machine, without its name, and this moment."""
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    return Circumstances(machine=machine.description(), date=now, python=platform.python_version())


@dataclass(frozen=True, kw_only=True)
class SecondResult:
    """One second; percentiles are of the answers that came in it."""

    second: int
    offered: int
    answered: int
    errors: int
    users: int
    in_flight: int
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None


@dataclass(frozen=True, kw_only=True)
class PhaseResult:
    """One phase: `latency_ms` counts from the moment of being due, `service_ms` from sending.

    They are the same in a closed loop, where `corrected_ms` is what a caller with the expected
    interval would have seen.
    """

    name: str
    loop: str
    start: float
    spawn_per_minute: float
    seconds: float
    offered_per_second: float
    answered_per_second: float
    rows_per_second: float
    answered: int
    failed: int
    dropped: int
    errors: dict[str, int]
    samples: int
    latency_ms: Numbers
    mean_ms: float | None
    longest_ms: float | None
    service_ms: Numbers
    corrected_ms: Numbers | None
    lag_ms: Numbers
    cpu_share: float
    max_waiting_for_connection: int
    reconnected: int
    ended_early: str | None
    outcome: str | None
    reason: str | None
    curve: tuple[tuple[float, float], ...]
    by_second: tuple[SecondResult, ...]


@dataclass(frozen=True, kw_only=True)
class SaturationResult:
    """The highest rate that held the SLO; `exact`: a rate a few percent higher missed it."""

    rate: float | None
    phase: int | None
    lowest_missed: float | None
    exact: bool


@dataclass(frozen=True, kw_only=True)
class LoadResult:
    """A load test, whole."""

    version: int
    subject: str
    kind: str
    slo_ms: float | None
    saturation: SaturationResult | None
    phases: tuple[PhaseResult, ...]
    stopped: str | None
    broken_off: bool
    tool_limits: dict[str, str]
    """Reasons why the load tool itself was the limit, by phase."""
    inputs: dict[str, Any]
    settings: dict[str, Any]
    circumstances: Circumstances
    headline: str = ""

    @property
    def chief(self) -> PhaseResult | None:
        """The phase that the report is about: the saturation point, else the last with answers."""
        if self.saturation is not None and self.saturation.phase is not None:
            return self.phases[self.saturation.phase]
        return next((phase for phase in reversed(self.phases) if phase.answered), None)

    @property
    def chief_tool_limit(self) -> str | None:
        """Why the load tool took part in the numbers of the chief phase; None: it did not."""
        return None if self.chief is None else self.tool_limits.get(self.chief.name)

    @property
    def slo_missed(self) -> bool:
        """Whether a phase missed the SLO or, in a search, no rate held it."""
        if self.saturation is not None:
            return self.saturation.rate is None and not self.broken_off
        return any(phase.outcome == Outcome.missed for phase in self.phases)

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        return asdict(self)


def load_result(test: LoadTest, measured: Measured, where: Circumstances) -> LoadResult:
    """Return the result of a load test, with its headline."""
    is_search = not test.phases
    pairs = list(zip(measured.phases, measured.verdicts, strict=True))
    limits = {phase.phase.name: tool_limit(phase, test.slo_ms) for phase in measured.phases}
    result = LoadResult(
        version=VERSION,
        subject=test.subject,
        kind="search for the saturation point" if is_search else f"{test.phases[0].loop} loop",
        slo_ms=test.slo_ms,
        saturation=_saturation(measured, pairs) if is_search else None,
        phases=tuple(_phase(test, phase, outcome) for phase, outcome in pairs),
        stopped=measured.stopped,
        broken_off=measured.interrupted,
        tool_limits={name: limit for name, limit in limits.items() if limit is not None},
        inputs=_inputs(test),
        settings=_settings(test, measured),
        circumstances=where,
    )
    return replace(result, headline=headline(result))


def _saturation(
    measured: Measured, pairs: list[tuple[Measurement, Verdict | None]]
) -> SaturationResult:
    known = bounds(measured.steps)
    held = [
        position
        for position, (phase, outcome) in enumerate(pairs)
        if outcome is not None
        and outcome.outcome is Outcome.held
        and phase.phase.start == known.held
    ]
    return SaturationResult(
        rate=known.held,
        phase=held[-1] if held else None,
        lowest_missed=known.missed,
        exact=is_exact(measured.steps),
    )


def _phase(test: LoadTest, measurement: Measurement, outcome: Verdict | None) -> PhaseResult:
    phase, interval = measurement.phase, test.options.expected_interval
    has_corrected = phase.loop is Loop.closed and interval is not None
    return PhaseResult(
        name=phase.name,
        loop=phase.loop.value,
        start=phase.start,
        spawn_per_minute=phase.spawn,
        seconds=measurement.seconds,
        offered_per_second=measurement.offered_per_second,
        answered_per_second=measurement.answered_per_second,
        rows_per_second=measurement.answered_per_second * test.inputs.rows_per_request,
        answered=measurement.answered,
        failed=measurement.failed,
        dropped=measurement.dropped,
        errors=dict(measurement.errors.most_common()),
        samples=len(measurement.latency),
        latency_ms=_numbers(measurement.latency),
        mean_ms=measurement.latency.mean_ms,
        longest_ms=measurement.latency.longest_ms,
        service_ms=_numbers(measurement.service),
        corrected_ms=_numbers(measurement.corrected) if has_corrected else None,
        lag_ms=_numbers(measurement.lag),
        cpu_share=measurement.cpu_share,
        max_waiting_for_connection=measurement.max_waiting,
        reconnected=measurement.reconnected,
        ended_early=measurement.ended_early,
        outcome=None if outcome is None else outcome.outcome.value,
        reason=None if outcome is None else outcome.reason,
        curve=measurement.latency.curve(),
        by_second=_seconds(measurement),
    )


def _seconds(measurement: Measurement) -> tuple[SecondResult, ...]:
    results = []
    for second in measurement.sending_seconds:
        latencies = sorted(second.milliseconds)
        p50, p95, p99 = (exact_percentile(latencies, percentile) for percentile in (50, 95, 99))
        results.append(
            SecondResult(
                second=second.second,
                offered=second.intended,
                answered=second.answered,
                errors=second.errors,
                users=second.users,
                in_flight=second.in_flight,
                p50_ms=p50,
                p95_ms=p95,
                p99_ms=p99,
            )
        )
    return tuple(results)


def _numbers(latencies: Latencies) -> Numbers:
    return {f"p{percentile:g}": latencies.percentile(percentile) for percentile in PERCENTILES}


def _inputs(test: LoadTest) -> dict[str, Any]:
    inputs = test.inputs
    return {
        "description": inputs.description,
        "sha256": inputs.sha256,
        "bodies": len(inputs.bodies),
        "mean_bytes": round(inputs.mean_bytes),
        "content_type": inputs.bodies[0].content_type.partition(";")[0],
        "rows_per_request": inputs.rows_per_request,
        "rows": inputs.rows,
    }


def _settings(test: LoadTest, measured: Measured) -> dict[str, Any]:
    options, probe = test.options, measured.probe
    return {
        "command": options.command,
        "url": test.destination.url,
        "signed": test.destination.region is not None,
        "arrivals": options.arrivals.value,
        "seed": options.seed,
        "connections": options.connections,
        "timeout_seconds": options.timeout,
        "warm_up_seconds": options.warm_up,
        "stop": None if test.stop is None else str(test.stop),
        "expected_interval_ms": options.expected_interval,
        "probe_per_second": None if probe is None else probe.answered_per_second,
    }


def headline(result: LoadResult) -> str:
    """Return what a reader takes away: rate, percentiles, errors, and what makes them doubtful."""
    main = _phases_summary(result) if result.saturation is None else _saturation_summary(result)
    return " ".join([main, *_doubts(result)])


def percentiles_text(numbers: Numbers) -> str:
    """Format `p50 3.20 ms, p95 …`; those without enough samples are left out."""
    known = [(name, numbers[name]) for name in HEADLINE_PERCENTILES]
    texts = [f"{name} {milliseconds(value)}" for name, value in known if value is not None]
    return ", ".join(texts) if texts else "too few answers for a percentile"


def _saturation_summary(result: LoadResult) -> str:
    saturation, chief = result.saturation, result.chief
    assert saturation is not None
    slo = f"p99 ≤ {result.slo_ms:g} ms"
    if saturation.rate is None or chief is None:
        return _nothing_held(result, slo)
    count, noun = result.inputs["rows_per_request"], result.inputs["rows"]
    rows = "" if count == 1 else f" ({per_second(saturation.rate * count)} {noun} a second)"
    most = "Saturates at" if saturation.exact else "Holds at least"
    return (
        f"{most} {per_second(saturation.rate)} requests a second{rows} with {slo}: "
        f"there {percentiles_text(chief.latency_ms)}, {_errors(chief)}."
    )


def _nothing_held(result: LoadResult, slo: str) -> str:
    if not result.phases:
        return "Nothing was measured."
    with_outcome = [phase for phase in result.phases if phase.outcome is not None]
    if not with_outcome:
        return f"No step was run to its end, so nothing is known of {slo}."
    lowest = min(with_outcome, key=lambda phase: phase.start)
    reason = "" if lowest.reason is None else f": {lowest.reason}"
    if lowest.loop == Loop.closed:
        return f"No rate holds {slo}{reason}."
    return (
        f"No rate that was tried holds {slo}; "
        f"the lowest was {per_second(lowest.start)} requests a second{reason}."
    )


def _phases_summary(result: LoadResult) -> str:
    chief = result.chief
    if chief is None:
        failed = next((phase for phase in result.phases if phase.failed), None)
        return "No request was answered" + ("." if failed is None else f": {_errors(failed)}.")
    which = "" if len(result.phases) == 1 else f" in {chief.name}, the last of {len(result.phases)}"
    is_short = chief.answered_per_second < ANSWERED_SHARE * chief.offered_per_second
    offered = f" of {per_second(chief.offered_per_second)} requests offered"
    summary = (
        f"{per_second(chief.answered_per_second)} answers a second"
        f"{offered if is_short and chief.loop == Loop.open else ''}{which}: "
        f"{percentiles_text(chief.latency_ms)}, {_errors(chief)}."
    )
    if chief.loop == Loop.open:
        return summary
    if chief.corrected_ms is None:
        return f"{summary} {CLOSED_LOOP}"
    corrected = percentiles_text(chief.corrected_ms)
    return f"{summary} Corrected for the requests that slow answers held back: {corrected}."


CLOSED_LOOP = (
    "A closed loop: users wait for answers before they ask again, "
    "so slow spells hold fewer requests than they would."
)


def _errors(phase: PhaseResult) -> str:
    if not phase.failed:
        return "no errors"
    return f"{quantity(phase.failed, 'error')} (most: {next(iter(phase.errors))})"


def _doubts(result: LoadResult) -> list[str]:
    doubts = []
    if result.broken_off:
        doubts.append("Broken off: what is here was measured until then.")
    if result.stopped is not None:
        doubts.append(f"Stopped early: {result.stopped}.")
    if result.saturation is None:
        misses = [phase for phase in result.phases if phase.outcome == Outcome.missed]
        doubts += [f"{phase.name} missed the SLO: {phase.reason}." for phase in misses]
    elif not result.saturation.exact and any(p.outcome == Outcome.tool for p in result.phases):
        doubts.append("Higher rates were the load tool's limit, not the server's.")
    if result.chief_tool_limit is not None:
        limit = result.chief_tool_limit
        doubts.append(f"The load tool itself takes part in these numbers: {limit}.")
    return doubts
