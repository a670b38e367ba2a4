"""The results of load tests: what a search found, headline, table and JSON document."""

from __future__ import annotations

import datetime
import platform
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Generic

from rich.table import Table

from engine_build import machine
from engine_build.card.render import milliseconds, per_second
from roundhouse import report
from roundhouse.load_test.load_test import L, LoadTest, M
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

VERSION = 4
"""Of the layout of an engine's document."""
NOTHING = milliseconds(None)
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
TEXT_COLUMNS = ("phase", "SLO")


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
class Highest(Generic[M]):
    """The highest load that held the SLO; `is_exact`: one a few percent higher missed it."""

    load: float
    phase: M
    lowest_missed: float | None
    is_exact: bool


@dataclass(frozen=True, kw_only=True)
class Result(ABC, Generic[L, M]):
    """A load test with what was measured."""

    test: L
    phases: Sequence[M]
    circumstances: Circumstances
    steps: Sequence[Step] = ()
    """Of a search."""
    ended: str | None = None
    """Why the search ended before both ends of its result were known."""
    broken_off: bool = False
    is_whole: ClassVar[bool] = False
    """Loads are whole numbers."""
    columns: ClassVar[tuple[str, ...]]
    """Of `cells` that a terminal shows."""
    nothing_held: ClassVar[str]

    @property
    @abstractmethod
    def chief(self) -> M | None:
        """The phase that the report is about; None where nothing was answered."""

    @abstractmethod
    def tool_limit(self, phase: M) -> str | None:
        """Return why a phase's numbers are the load tool's own; None when they are not."""

    @abstractmethod
    def cells(self, phase: M) -> dict[str, str]:
        """Return a phase's cells by column."""

    @abstractmethod
    def _summary(self) -> str:
        """Return what a reader takes away."""

    @property
    def is_search(self) -> bool:
        """Whether the highest load within the SLO was searched for."""
        return not self.test.phases

    @property
    def highest(self) -> Highest[M] | None:
        """What a search found; None where no load held the SLO."""
        held, missed = bounds(self.steps)
        phases = [
            phase
            for phase in self.phases
            if outcome_of(phase) is Outcome.held and phase.phase.start == held
        ]
        if held is None or not phases:
            return None
        exact = is_exact(self.steps, is_whole=self.is_whole)
        return Highest(load=held, phase=phases[-1], lowest_missed=missed, is_exact=exact)

    @property
    def tool_limits(self) -> dict[str, str]:
        """Reasons why the load tool itself was the limit, by phase."""
        limits = {phase.phase.name: self.tool_limit(phase) for phase in self.phases}
        return {name: limit for name, limit in limits.items() if limit is not None}

    @property
    def slo_missed(self) -> bool:
        """Whether a phase missed the SLO or, in a search, no load held it."""
        if self.is_search:
            return self.highest is None and not self.broken_off
        return any(outcome_of(phase) is Outcome.missed for phase in self.phases)

    @property
    def fault(self) -> str | None:
        """Why there is no answer at all; None where there is one."""
        return self.headline if self.chief is None else None

    @property
    def date(self) -> str:
        """When it ended."""
        return self.circumstances.date

    @property
    def headline(self) -> str:
        """What a reader takes away, and what makes it doubtful."""
        return " ".join([self._summary(), *self._doubts()])

    def _doubts(self) -> Iterator[str]:
        highest, chief = self.highest, self.chief
        if self.broken_off:
            yield "Broken off: what is here was measured until then."
        if highest is not None and not highest.is_exact:
            yield f"More may hold{'' if self.ended is None else f': {self.ended}'}."
            if Outcome.tool in map(outcome_of, self.phases):
                yield "Higher loads were the load tool's limit, not the server's."
        for phase in () if self.is_search else self.phases:
            if outcome_of(phase) is Outcome.missed and phase.verdict is not None:
                yield f"{phase.phase.name} missed the SLO: {phase.verdict.reason}."
        if chief is not None and (limit := self.tool_limits.get(chief.phase.name)) is not None:
            yield f"The load tool itself takes part in these numbers: {limit}."
        if chief is not None and (limit := machine_limit(chief)) is not None:
            yield f"The load tool's machine takes part in these numbers: {limit}."

    def _unanswered(self) -> str:
        failed = next((phase for phase in self.phases if phase.failed), None)
        return f"No request was answered{'' if failed is None else f': {errors_text(failed)}'}."

    def table(self) -> Table:
        """Return a table with a row for each phase; the chief one stands out."""
        rows = [[cells[head] for head in self.columns] for cells in map(self.cells, self.phases)]
        right = [head for head in self.columns if head not in TEXT_COLUMNS]
        table = report.table(self.columns, rows, right=right)
        for phase, row in zip(self.phases, table.rows, strict=True):
            row.style = "bold" if phase is self.chief else None
        return table

    def document(self) -> dict[str, Any]:
        """Return the result for JSON."""
        test = self.test
        return {
            "subject": test.subject,
            "headline": self.headline,
            "ended": self.ended,
            "broken_off": self.broken_off,
            "tool_limits": self.tool_limits,
            "settings": {
                "command": test.options.command,
                "seed": test.client.seed,
                "url": test.destination.url,
                "signed": test.destination.region is not None,
                "timeout_seconds": test.client.timeout,
                "warm_up_seconds": test.options.warm_up_seconds,
            },
            "circumstances": asdict(self.circumstances),
        }


@dataclass(frozen=True, kw_only=True)
class LoadResult(Result[LoadTest, Measurement]):
    """A load test of an engine with what was measured."""

    probe_per_second: float | None = None
    """Answers to the probe of a search."""
    columns = ("phase", "offered/s", "answered/s", "p50", "p95", "p99", "errors", "SLO")
    nothing_held = "no rate held the SLO"

    @property
    def kind(self) -> str:
        """A search, or the loop of its phases."""
        phases = self.test.phases
        return f"{phases[0].loop} loop" if phases else "search for the saturation point"

    @property
    def chief(self) -> Measurement | None:
        """The saturation point, else the last phase with answers."""
        if self.highest is not None:
            return self.highest.phase
        return next((phase for phase in reversed(self.phases) if phase.answered), None)

    def tool_limit(self, phase: Measurement) -> str | None:
        """Return why a phase's numbers are the load tool's own; None when they are not."""
        return tool_limit(phase, self.test.slo_ms)

    def _summary(self) -> str:
        if not self.is_search:
            return self._phases_summary()
        slo, highest = f"p99 ≤ {self.test.slo_ms:g} ms", self.highest
        if highest is None:
            return self._nothing_held(slo)
        inputs, rate = self.test.inputs, per_second(highest.load)
        rows = f" ({per_second(highest.load * inputs.rows_per_request)} {inputs.rows} a second)"
        return (
            f"{'Saturates at' if highest.is_exact else 'Proven:'} {rate} requests a second"
            f"{'' if inputs.rows_per_request == 1 else rows} with {slo}: "
            f"there {percentiles_text(highest.phase.latency)}, {errors_text(highest.phase)}."
        )

    def _nothing_held(self, slo: str) -> str:
        if not self.phases:
            return "Nothing was measured."
        known = [(m.phase, m.verdict) for m in self.phases if m.verdict is not None]
        if not known:
            return f"No step was run to its end, so nothing is known of {slo}."
        phase, verdict = min(known, key=lambda pair: pair[0].start)
        if phase.loop is Loop.closed:
            return f"No rate holds {slo}: {verdict.reason}."
        lowest = f"the lowest was {per_second(phase.start)} requests a second: {verdict.reason}"
        return f"No rate that was tried holds {slo}; {lowest}."

    def _phases_summary(self) -> str:
        chief = self.chief
        if chief is None:
            return self._unanswered()
        count, is_open = len(self.phases), chief.phase.loop is Loop.open
        is_short = chief.answered_per_second < ANSWERED_SHARE * chief.offered_per_second
        offered = f" of {per_second(chief.offered_per_second)} requests offered"
        summary = (
            f"{per_second(chief.answered_per_second)} answers a second"
            f"{offered if is_short and is_open else ''}"
            f"{'' if count == 1 else f' in {chief.phase.name}, the last of {count}'}: "
            f"{percentiles_text(chief.latency)}, {errors_text(chief)}."
        )
        return summary if is_open else f"{summary} {CLOSED_LOOP}"

    def cells(self, phase: Measurement) -> dict[str, str]:
        """Return a phase's cells by column."""
        latency, is_open = phase.latency, phase.phase.loop is Loop.open
        users = max((second.users for second in phase.sending_seconds), default=0)
        return {
            "phase": f"{phase.phase.name} · {phase.seconds:.0f} s",
            "offered/s": per_second(phase.offered_per_second) if is_open else NOTHING,
            "answered/s": per_second(phase.answered_per_second),
            "users": NOTHING if is_open else f"{users:,}",
            **{f"p{p:g}": milliseconds(latency.percentile(p)) for p in (50, 95, 99, 99.9)},
            "errors": f"{phase.failed:,}",
            "SLO": outcome_of(phase) or phase.ended_early or NOTHING,
            "longest": milliseconds(latency.longest_ms),
            "tool's lag": milliseconds(phase.lag.percentile(99)),
            "its CPU": f"{phase.cpu_share:.0%}",
        }

    def document(self) -> dict[str, Any]:
        """Return the result for JSON; a percentile is None where there are too few samples."""
        document, inputs, highest = super().document(), self.test.inputs, self.highest
        place = next((n for n, m in enumerate(self.phases) if highest and m is highest.phase), None)
        rate, missed = bounds(self.steps)
        saturation = {
            "rate": rate,
            "phase": place,
            "lowest_missed": missed,
            "exact": highest is not None and highest.is_exact,
        }
        document["settings"]["connections"] = self.test.client.connections
        document["settings"]["probe_per_second"] = self.probe_per_second
        return {
            "version": VERSION,
            "kind": self.kind,
            "slo_ms": self.test.slo_ms,
            "saturation": saturation if self.is_search else None,
            "phases": [_phase(phase, inputs.rows_per_request) for phase in self.phases],
            "inputs": {"bodies": len(inputs.bodies), **_fields(inputs, INPUTS)},
            **document,
        }


def outcome_of(measurement: Measurement) -> Outcome | None:
    """Return a phase's outcome; None where nothing was to be held."""
    return None if measurement.verdict is None else measurement.verdict.outcome


def verdict_fields(phase: Measurement) -> dict[str, Any]:
    """Return a phase's name, errors and verdict for JSON."""
    verdict = phase.verdict
    return {
        "name": phase.phase.name,
        "loop": phase.phase.loop,
        "errors": dict(phase.errors.most_common()),
        "outcome": None if verdict is None else verdict.outcome,
        "reason": None if verdict is None else verdict.reason,
    }


def errors_text(phase: Measurement) -> str:
    """Return how many requests failed, and why most of them did."""
    if not phase.failed:
        return "no errors"
    worst, _ = phase.errors.most_common(1)[0]
    return f"{quantity(phase.failed, 'error')} (most: {worst})"


def _phase(measurement: Measurement, rows_per_request: int) -> dict[str, Any]:
    phase, latency = measurement.phase, measurement.latency
    return {
        **verdict_fields(measurement),
        "start": phase.start,
        "spawn_per_minute": phase.spawn,
        **_fields(measurement, COUNTS),
        "rows_per_second": measurement.answered_per_second * rows_per_request,
        "max_waiting_for_connection": measurement.max_waiting,
        "samples": len(latency),
        "latency_ms": _percentiles(latency),
        "mean_ms": latency.mean_ms,
        "longest_ms": latency.longest_ms,
        "service_ms": _percentiles(measurement.service),
        "lag_ms": _percentiles(measurement.lag),
        "by_second": [
            {**_fields(second, SECOND), **{f"p{p}_ms": second.percentile(p) for p in (50, 95, 99)}}
            for second in measurement.sending_seconds
        ],
    }


def _fields(value: object, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(value, name) for name in names}


def _percentiles(latencies: Latencies) -> dict[str, float | None]:
    return {f"p{percentile:g}": latencies.percentile(percentile) for percentile in PERCENTILES}
