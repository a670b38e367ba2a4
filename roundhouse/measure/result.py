"""The results of load tests: what a search found, headline, table and JSON document."""

from __future__ import annotations

import datetime
import platform
from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any, ClassVar

from engine_build import machine
from roundhouse.figures import milliseconds, per_second
from roundhouse.measure.measurement import (
    ANSWERED_SHARE,
    Measurement,
    Outcome,
    percentiles_text,
    proven_percentile,
)
from roundhouse.measure.options import Loop
from roundhouse.measure.runner import EngineTest, LoadTest
from roundhouse.measure.slo import Step, bounds, is_exact, machine_limit, tool_limit
from roundhouse.table import NOTHING, Table, table

VERSION = 6
"""Of the layout of an engine's document."""
PERCENTILES = (50, 90, 95, 99, 99.9, 99.99)
INPUTS = ("description", "sha256", "mean_bytes", "content_type", "rows_per_request", "rows")
COUNTS = (
    "seconds", "offered_per_second", "answered_per_second", "answered", "failed",
    "cpu_share", "machine_share", "reconnected", "ended_early",
)  # fmt: skip
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
class Highest:
    """The highest load that held the SLO; `is_exact`: one a few percent higher missed it."""

    load: float
    phase: Measurement
    lowest_missed: float | None
    is_exact: bool


@dataclass(frozen=True, kw_only=True)
class Result(ABC):
    """A load test with what was measured."""

    test: LoadTest
    phases: Sequence[Measurement]
    circumstances: Circumstances
    steps: Sequence[Step] = ()
    """Of a search."""
    ended: str | None = None
    """Why the search ended before both ends of its result were known."""
    broken_off: bool = False
    is_whole: ClassVar[bool] = False
    """Loads are whole numbers."""
    columns: ClassVar[tuple[str, ...]]
    """Of `cells`."""
    verb: ClassVar[str]
    """Of a highest load that is exact."""
    version: ClassVar[int]

    @property
    @abstractmethod
    def chief(self) -> Measurement | None:
        """The phase that the report is about; None where nothing was answered."""

    @abstractmethod
    def cells(self, phase: Measurement) -> dict[str, str]:
        """Return a phase's cells by column."""

    @abstractmethod
    def _phase(self, phase: Measurement) -> dict[str, Any]:
        """Return a phase for JSON."""

    @abstractmethod
    def _load(self, load: float) -> str:
        """Return a search's load in words."""

    @abstractmethod
    def _numbers(self, phase: Measurement) -> str:
        """Return what is said of the highest load that held."""

    @abstractmethod
    def _phases_summary(self, chief: Measurement) -> str:
        """Return what a reader takes away of a load that was given."""

    @property
    def is_search(self) -> bool:
        """Whether the highest load within the SLO was searched for."""
        return not self.test.phases

    @property
    def highest(self) -> Highest | None:
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
        limits = {phase.phase.name: tool_limit(phase, self.test.slo) for phase in self.phases}
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
        if highest is None and self.ended is not None:
            yield f"The search ended early: {self.ended}."
        for phase in () if self.is_search else self.phases:
            if outcome_of(phase) is Outcome.missed and phase.verdict is not None:
                yield f"{phase.phase.name} missed the SLO: {phase.verdict.reason}."
        if chief is not None and (limit := self.tool_limits.get(chief.phase.name)) is not None:
            yield f"The load tool itself takes part in these numbers: {limit}."
        if chief is not None and (limit := machine_limit(chief)) is not None:
            yield f"The load tool's machine takes part in these numbers: {limit}."

    def _summary(self) -> str:
        slo, highest, chief = self.test.slo, self.highest, self.chief
        if not self.phases:
            return "Nothing was measured."
        if chief is None:
            failed = next((phase for phase in self.phases if phase.failed), None)
            return f"No request was answered{'' if failed is None else f': {failed.errors_text}'}."
        if not self.is_search:
            return self._phases_summary(chief)
        if highest is not None:
            verb = self.verb if highest.is_exact else "Proven:"
            phase = highest.phase
            numbers = f"{self._numbers(phase)}, {phase.errors_text}"
            return f"{verb} {self._load(highest.load)} with {slo}: {numbers}."
        known = [(phase.phase, phase.verdict) for phase in self.phases if phase.verdict is not None]
        if not known:
            return f"No step was run to its end, so nothing is known of {slo}."
        lowest, verdict = min(known, key=lambda pair: pair[0].start)
        load = self._load(lowest.start)
        return f"No load that was tried holds {slo}; the lowest was {load}: {verdict.reason}."

    def table(self) -> Table:
        """Return a table with a row for each phase; the chief one stands out."""
        heads, chief = self.columns, self.chief
        rows = [[cells[head] for head in heads] for cells in map(self.cells, self.phases)]
        right = [head for head in heads if head not in TEXT_COLUMNS]
        bold = [number for number, phase in enumerate(self.phases) if phase is chief]
        return table(heads, rows, right=right, chief=bold)

    def document(self) -> dict[str, Any]:
        """Return the result for JSON."""
        test = self.test
        return {
            "version": self.version,
            "phases": [self._phase(phase) for phase in self.phases],
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
class EngineResult(Result):
    """A load test of an engine with what was measured."""

    test: EngineTest
    columns = ("phase", "offered/s", "answered/s", "p50", "p95", "p99", "errors", "SLO")
    verb = "Saturates at"
    version = VERSION

    @property
    def chief(self) -> Measurement | None:
        """The saturation point, else the last phase with answers."""
        if self.highest is not None:
            return self.highest.phase
        return next((phase for phase in reversed(self.phases) if phase.answered), None)

    def _load(self, load: float) -> str:
        inputs = self.test.inputs
        if self.phases[0].phase.loop is Loop.closed:
            return "one user alone"
        rows = f" ({per_second(load * inputs.rows_per_request)} {inputs.rows} a second)"
        more = "" if inputs.rows_per_request == 1 else rows
        return f"{per_second(load)} requests a second{more}"

    def _numbers(self, phase: Measurement) -> str:
        return f"there {percentiles_text(phase.latency)}"

    def _phases_summary(self, chief: Measurement) -> str:
        count, is_open = len(self.phases), chief.phase.loop is Loop.open
        is_short = chief.answered_per_second < ANSWERED_SHARE * chief.offered_per_second
        offered = f" of {per_second(chief.offered_per_second)} requests offered"
        summary = (
            f"{per_second(chief.answered_per_second)} answers a second"
            f"{offered if is_short and is_open else ''}"
            f"{'' if count == 1 else f' in {chief.phase.name}, the last of {count}'}: "
            f"{percentiles_text(chief.latency)}, {chief.errors_text}."
        )
        return summary if is_open else f"{summary} {CLOSED_LOOP}"

    def cells(self, phase: Measurement) -> dict[str, str]:
        """Return a phase's cells by column."""
        latency, is_open = phase.latency, phase.phase.loop is Loop.open
        return {
            "phase": f"{phase.phase.name} · {phase.seconds:.0f} s",
            "offered/s": per_second(phase.offered_per_second) if is_open else NOTHING,
            "answered/s": per_second(phase.answered_per_second),
            **{f"p{p:g}": milliseconds(proven_percentile(latency, p)) for p in (50, 95, 99)},
            "errors": f"{phase.failed:,}",
            "SLO": outcome_of(phase) or phase.ended_early or NOTHING,
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
        return {
            "slo_ms": None if self.test.slo is None else self.test.slo.first_ms,
            "saturation": saturation if self.is_search else None,
            "inputs": {"bodies": len(inputs.bodies), **_fields(inputs, INPUTS)},
            **document,
        }

    def _phase(self, phase: Measurement) -> dict[str, Any]:
        load, latency = phase.phase, phase.latency
        rows_per_request = self.test.inputs.rows_per_request
        return {
            **verdict_fields(phase),
            "start": load.start,
            **_fields(phase, COUNTS),
            "rows_per_second": phase.answered_per_second * rows_per_request,
            "samples": len(latency),
            "latency_ms": _percentiles(latency, PERCENTILES),
            "mean_ms": fmean(latency) if latency else None,
            "longest_ms": max(latency, default=None),
            "service_ms": _percentiles(phase.service, PERCENTILES),
            "lag_ms": _percentiles(phase.lag, PERCENTILES),
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


def _fields(value: object, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(value, name) for name in names}


def _percentiles(values: array[float], percents: Sequence[float]) -> dict[str, float | None]:
    return {f"p{percent:g}": proven_percentile(values, percent) for percent in percents}
