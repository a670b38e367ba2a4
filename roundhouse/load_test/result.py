"""The result of a load test: its headline, table and JSON document."""

from __future__ import annotations

import datetime
import platform
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.markup import escape
from rich.table import Table

from engine_build import machine
from engine_build.card.render import milliseconds, per_second
from roundhouse.load_test.load_test import LoadTest
from roundhouse.load_test.measurement import Latencies, Measurement, Outcome, percentiles_text
from roundhouse.load_test.options import Loop
from roundhouse.load_test.saturation import (
    ANSWERED_SHARE,
    Step,
    bounds,
    is_exact,
    machine_limit,
    tool_limit,
)
from roundhouse.text import quantity

VERSION = 3
"""Of the document's layout."""
PERCENTILES = (50, 90, 95, 99, 99.9, 99.99)
INPUTS = ("description", "sha256", "mean_bytes", "content_type", "rows_per_request", "rows")
COUNTS = (
    "seconds", "offered_per_second", "answered_per_second", "answered", "failed", "dropped",
    "cpu_share", "machine_share", "reconnected", "ended_early",
)  # fmt: skip
SECOND = ("second", "offered", "answered", "errors", "users", "in_flight")
CLOSED_LOOP = (
    "A closed loop: users wait for answers before they ask again, "
    "so slow spells hold fewer requests than they would."
)


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
class Saturation:
    """The highest rate that held the SLO; `exact`: a rate a few percent higher missed it."""

    rate: float | None
    phase: int | None
    lowest_missed: float | None
    exact: bool


@dataclass(frozen=True, kw_only=True)
class LoadResult:
    """A load test with what was measured."""

    test: LoadTest
    phases: Sequence[Measurement]
    circumstances: Circumstances
    steps: Sequence[Step] = ()
    """Of a search."""
    probe_per_second: float | None = None
    """Answers to the probe of a search."""
    ended: str | None = None
    """Why the search ended before both ends of its result were known."""
    broken_off: bool = False

    @property
    def kind(self) -> str:
        """A search, or the loop of its phases."""
        phases = self.test.phases
        return f"{phases[0].loop} loop" if phases else "search for the saturation point"

    @property
    def saturation(self) -> Saturation | None:
        """The result of a search; None where phases were given."""
        if self.test.phases:
            return None
        rate, missed = bounds(self.steps)
        held = [
            position
            for position, measurement in enumerate(self.phases)
            if outcome_of(measurement) is Outcome.held and measurement.phase.start == rate
        ]
        phase = held[-1] if held else None
        return Saturation(rate=rate, phase=phase, lowest_missed=missed, exact=is_exact(self.steps))

    @property
    def chief(self) -> Measurement | None:
        """The phase that the report is about: the saturation point, else the last with answers."""
        saturation = self.saturation
        if saturation is not None and saturation.phase is not None:
            return self.phases[saturation.phase]
        return next((phase for phase in reversed(self.phases) if phase.answered), None)

    @property
    def tool_limits(self) -> dict[str, str]:
        """Reasons why the load tool itself was the limit, by phase."""
        limits = {m.phase.name: tool_limit(m, self.test.slo_ms) for m in self.phases}
        return {name: limit for name, limit in limits.items() if limit is not None}

    @property
    def slo_missed(self) -> bool:
        """Whether a phase missed the SLO or, in a search, no rate held it."""
        if self.saturation is not None:
            return self.saturation.rate is None and not self.broken_off
        return any(outcome_of(phase) is Outcome.missed for phase in self.phases)

    @property
    def fault(self) -> str | None:
        """Why there is no answer at all; None where there is one."""
        if any(phase.answered for phase in self.phases):
            return None
        reasons = [reason for phase in self.phases for reason, _ in phase.errors.most_common()]
        return f"no request was answered ({reasons[0] if reasons else 'none was sent'});"

    @property
    def date(self) -> str:
        """When it ended."""
        return self.circumstances.date

    @property
    def headline(self) -> str:
        """What a reader takes away: rate, percentiles, errors, and what makes them doubtful."""
        saturation = self.saturation
        summary = _phases_summary(self) if saturation is None else _search_summary(self, saturation)
        return " ".join([summary, *_doubts(self)])

    def document(self) -> dict[str, Any]:
        """Return the result for JSON; a percentile is None where there are too few samples."""
        test, inputs = self.test, self.test.inputs
        return {
            "version": VERSION,
            "subject": test.subject,
            "kind": self.kind,
            "slo_ms": test.slo_ms,
            "headline": self.headline,
            "saturation": None if self.saturation is None else asdict(self.saturation),
            "phases": [_phase(phase, inputs.rows_per_request) for phase in self.phases],
            "ended": self.ended,
            "broken_off": self.broken_off,
            "tool_limits": self.tool_limits,
            "inputs": {"bodies": len(inputs.bodies), **_fields(inputs, INPUTS)},
            "settings": {
                "command": test.options.command,
                "seed": test.client.seed,
                "connections": test.client.connections,
                "url": test.destination.url,
                "signed": test.destination.region is not None,
                "timeout_seconds": test.client.timeout,
                "warm_up_seconds": test.options.warm_up,
                "probe_per_second": self.probe_per_second,
            },
            "circumstances": asdict(self.circumstances),
        }

    def table(self) -> Table:
        """Return a table with a row for each phase; the chief one stands out."""
        table = Table()
        for column in ("Phase", "Offered/s", "Answered/s", "p50", "p95", "p99", "Errors", "SLO"):
            table.add_column(column, justify="left" if column in ("Phase", "SLO") else "right")
        for measurement in self.phases:
            phase, verdict = measurement.phase, measurement.verdict
            table.add_row(
                escape(phase.name),
                per_second(measurement.offered_per_second) if phase.loop is Loop.open else "–",
                per_second(measurement.answered_per_second),
                *(milliseconds(measurement.latency.percentile(p)) for p in (50, 95, 99)),
                f"{measurement.failed:,}",
                "–" if verdict is None else verdict.outcome,
                style="bold" if measurement is self.chief else None,
            )
        return table


def outcome_of(measurement: Measurement) -> Outcome | None:
    """Return a phase's outcome; None where nothing was to be held."""
    return None if measurement.verdict is None else measurement.verdict.outcome


def _search_summary(result: LoadResult, saturation: Saturation) -> str:
    slo, chief = f"p99 ≤ {result.test.slo_ms:g} ms", result.chief
    if saturation.rate is None or chief is None:
        return _nothing_held(result, slo)
    inputs, rate = result.test.inputs, per_second(saturation.rate)
    rows = f" ({per_second(saturation.rate * inputs.rows_per_request)} {inputs.rows} a second)"
    return (
        f"{'Saturates at' if saturation.exact else 'Proven:'} {rate} requests a second"
        f"{'' if inputs.rows_per_request == 1 else rows} with {slo}: "
        f"there {percentiles_text(chief.latency)}, {errors_text(chief)}."
    )


def _nothing_held(result: LoadResult, slo: str) -> str:
    if not result.phases:
        return "Nothing was measured."
    known = [(m.phase, m.verdict) for m in result.phases if m.verdict is not None]
    if not known:
        return f"No step was run to its end, so nothing is known of {slo}."
    phase, verdict = min(known, key=lambda pair: pair[0].start)
    if phase.loop is Loop.closed:
        return f"No rate holds {slo}: {verdict.reason}."
    lowest = f"the lowest was {per_second(phase.start)} requests a second: {verdict.reason}"
    return f"No rate that was tried holds {slo}; {lowest}."


def _phases_summary(result: LoadResult) -> str:
    chief = result.chief
    if chief is None:
        failed = next((phase for phase in result.phases if phase.failed), None)
        return "No request was answered" + ("." if failed is None else f": {errors_text(failed)}.")
    count, is_open = len(result.phases), chief.phase.loop is Loop.open
    is_short = chief.answered_per_second < ANSWERED_SHARE * chief.offered_per_second
    offered = f" of {per_second(chief.offered_per_second)} requests offered"
    summary = (
        f"{per_second(chief.answered_per_second)} answers a second"
        f"{offered if is_short and is_open else ''}"
        f"{'' if count == 1 else f' in {chief.phase.name}, the last of {count}'}: "
        f"{percentiles_text(chief.latency)}, {errors_text(chief)}."
    )
    return summary if is_open else f"{summary} {CLOSED_LOOP}"


def _doubts(result: LoadResult) -> Iterator[str]:
    saturation = result.saturation
    if result.broken_off:
        yield "Broken off: what is here was measured until then."
    if saturation is None:
        for measurement in result.phases:
            if outcome_of(measurement) is Outcome.missed and measurement.verdict is not None:
                yield f"{measurement.phase.name} missed the SLO: {measurement.verdict.reason}."
    elif saturation.rate is not None and not saturation.exact:
        yield f"More may hold{'' if result.ended is None else f': {result.ended}'}."
        if Outcome.tool in map(outcome_of, result.phases):
            yield "Higher rates were the load tool's limit, not the server's."
    chief = result.chief
    if chief is not None and (limit := result.tool_limits.get(chief.phase.name)) is not None:
        yield f"The load tool itself takes part in these numbers: {limit}."
    if chief is not None and (limit := machine_limit(chief)) is not None:
        yield f"The load tool's machine takes part in these numbers: {limit}."


def errors_text(phase: Measurement) -> str:
    """Return how many requests failed, and why most of them did."""
    if not phase.failed:
        return "no errors"
    worst, _ = phase.errors.most_common(1)[0]
    return f"{quantity(phase.failed, 'error')} (most: {worst})"


def _phase(measurement: Measurement, rows_per_request: int) -> dict[str, Any]:
    phase, verdict, latency = measurement.phase, measurement.verdict, measurement.latency
    return {
        "name": phase.name,
        "loop": phase.loop,
        "start": phase.start,
        "spawn_per_minute": phase.spawn,
        **_fields(measurement, COUNTS),
        "rows_per_second": measurement.answered_per_second * rows_per_request,
        "max_waiting_for_connection": measurement.max_waiting,
        "errors": dict(measurement.errors.most_common()),
        "samples": len(latency),
        "latency_ms": _percentiles(latency),
        "mean_ms": latency.mean_ms,
        "longest_ms": latency.longest_ms,
        "service_ms": _percentiles(measurement.service),
        "lag_ms": _percentiles(measurement.lag),
        "outcome": None if verdict is None else verdict.outcome,
        "reason": None if verdict is None else verdict.reason,
        "curve": latency.curve(),
        "by_second": [
            {**_fields(second, SECOND), **{f"p{p}_ms": second.percentile(p) for p in (50, 95, 99)}}
            for second in measurement.sending_seconds
        ],
    }


def _fields(value: object, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(value, name) for name in names}


def _percentiles(latencies: Latencies) -> dict[str, float | None]:
    return {f"p{percentile:g}": latencies.percentile(percentile) for percentile in PERCENTILES}
