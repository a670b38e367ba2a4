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

from rich.table import Table

from engine_build import machine
from engine_build.card.render import milliseconds, per_second
from roundhouse import report
from roundhouse.measure.measurement import (
    ANSWERED_SHARE,
    Measurement,
    Outcome,
    percentiles_text,
    proven_percentile,
)
from roundhouse.measure.options import Loop
from roundhouse.measure.prompts import WordTokens
from roundhouse.measure.runner import (
    EngineRunner,
    EngineTest,
    GenerationRunner,
    GenerationTest,
    LoadTest,
    Runner,
)
from roundhouse.measure.slo import (
    ITL,
    TTFT,
    Step,
    bounds,
    is_exact,
    machine_limit,
    tool_limit,
)
from roundhouse.measure.streams import StreamMeasurement, metrics, p95

ENGINE_VERSION, GENERATION_VERSION = 4, 1
"""Of the documents' layouts."""
AIPERF_SCHEMA = "1.5"
"""Of profile_export_aiperf.json, whose names and fields the metrics of text generators have."""
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
    """Of `cells` that a terminal shows."""
    nothing_held: ClassVar[str]
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
    def _summary(self) -> str:
        """Return what a reader takes away."""

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
        for phase in () if self.is_search else self.phases:
            if outcome_of(phase) is Outcome.missed and phase.verdict is not None:
                yield f"{phase.phase.name} missed the SLO: {phase.verdict.reason}."
        if chief is not None and (limit := self.tool_limits.get(chief.phase.name)) is not None:
            yield f"The load tool itself takes part in these numbers: {limit}."
        if chief is not None and (limit := machine_limit(chief)) is not None:
            yield f"The load tool's machine takes part in these numbers: {limit}."

    def _unanswered(self) -> str:
        failed = next((phase for phase in self.phases if phase.failed), None)
        return f"No request was answered{'' if failed is None else f': {failed.errors_text}'}."

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
    probe_per_second: float | None = None
    """Answers to the probe of a search."""
    columns = ("phase", "offered/s", "answered/s", "p50", "p95", "p99", "errors", "SLO")
    nothing_held = "no rate held the SLO"
    version = ENGINE_VERSION

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

    def _summary(self) -> str:
        if not self.is_search:
            return self._phases_summary()
        slo, highest = str(self.test.slo), self.highest
        if highest is None:
            return self._nothing_held(slo)
        inputs, rate = self.test.inputs, per_second(highest.load)
        rows = f" ({per_second(highest.load * inputs.rows_per_request)} {inputs.rows} a second)"
        return (
            f"{'Saturates at' if highest.is_exact else 'Proven:'} {rate} requests a second"
            f"{'' if inputs.rows_per_request == 1 else rows} with {slo}: "
            f"there {percentiles_text(highest.phase.latency)}, {highest.phase.errors_text}."
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
            f"{percentiles_text(chief.latency)}, {chief.errors_text}."
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
            **{f"p{p:g}": milliseconds(proven_percentile(latency, p)) for p in (50, 95, 99, 99.9)},
            "errors": f"{phase.failed:,}",
            "SLO": outcome_of(phase) or phase.ended_early or NOTHING,
            "longest": milliseconds(max(latency, default=None)),
            "tool's lag": milliseconds(proven_percentile(phase.lag, 99)),
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
            "kind": self.kind,
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
            "spawn_per_minute": load.spawn,
            **_fields(phase, COUNTS),
            "rows_per_second": phase.answered_per_second * rows_per_request,
            "max_waiting_for_connection": phase.max_waiting,
            "samples": len(latency),
            "latency_ms": _percentiles(latency, PERCENTILES),
            "mean_ms": fmean(latency) if latency else None,
            "longest_ms": max(latency, default=None),
            "service_ms": _percentiles(phase.service, PERCENTILES),
            "lag_ms": _percentiles(phase.lag, PERCENTILES),
            "by_second": [
                {
                    **_fields(second, SECOND),
                    **{
                        f"{name}_ms": value
                        for name, value in _percentiles(second.milliseconds, (50, 95, 99)).items()
                    },
                }
                for second in phase.sending_seconds
            ],
        }


@dataclass(frozen=True, kw_only=True)
class GenerationResult(Result):
    """A load test of a text generator with what was measured."""

    test: GenerationTest
    tokens: WordTokens
    version = GENERATION_VERSION
    is_whole = True
    columns = (
        "phase", "requests/s", "goodput/s", "output tokens/s", "TTFT p50", "TTFT p95", "ITL p50",
        "ITL p95", "TPOT p50", "E2E p50", "errors", "SLO",
    )  # fmt: skip
    nothing_held = "no number of requests at once was shown to hold the SLO"

    @property
    def chief(self) -> StreamMeasurement | None:
        """The knee, else the phase with the most goodput."""
        if self.highest is not None:
            return _stream(self.highest.phase)
        phases = [phase for phase in map(_stream, self.phases) if phase.answers]
        return max(phases, key=lambda phase: phase.goodput or phase.requests_per_second,
                   default=None)  # fmt: skip

    def cells(self, phase: Measurement) -> dict[str, str]:
        """Return a phase's cells by column."""
        phase = _stream(phase)
        ttfts, gaps = phase.ttfts_ms, phase.gaps_ms
        tpots = [1000 * tpot for answer in phase.answers if (tpot := answer.tpot) is not None]
        times: dict[str, tuple[Sequence[float], float]] = {
            "TTFT p50": (ttfts, 50),
            "TTFT p95": (ttfts, 95),
            "ITL p50": (gaps, 50),
            "ITL p95": (gaps, 95),
            "TPOT p50": (tpots, 50),
            "E2E p50": ([1000 * answer.latency for answer in phase.answers], 50),
        }
        return {
            "phase": phase.phase.name,
            "requests/s": per_second(phase.requests_per_second),
            "goodput/s": NOTHING if phase.goodput is None else per_second(phase.goodput),
            "output tokens/s": per_second(phase.output_tokens_per_second),
            **{
                name: milliseconds(proven_percentile(values, percent))
                for name, (values, percent) in times.items()
            },
            "errors": f"{phase.failed:,}",
            "SLO": outcome_of(phase) or phase.ended_early or NOTHING,
        }

    def document(self) -> dict[str, Any]:
        """Return the result for JSON; metrics have AIPerf's names and fields."""
        test, highest, document = self.test, self.highest, super().document()
        workload, knee = test.workload, None if highest is None else _stream(highest.phase)
        document["settings"]["schema"] = test.schema
        return {
            "metrics_schema": f"profile_export_aiperf.json {AIPERF_SCHEMA}",
            "slo": None
            if test.slo is None
            else {"ttft_ms": test.slo.limits[TTFT], "itl_ms": test.slo.limits[ITL]},
            "knee": None
            if highest is None or knee is None
            else {
                "concurrency": int(highest.load),
                "lowest_missed": highest.lowest_missed,
                "exact": highest.is_exact,
                "goodput_requests_per_second": knee.goodput,
                "ttft_p95_ms": p95(knee.ttfts_ms),
                "itl_p95_ms": p95(knee.gaps_ms),
                "output_tokens_per_second": knee.output_tokens_per_second,
            },
            "workload": {
                "description": workload.description or str(workload.lengths),
                "sha256": workload.sha256,
                "lengths": None if workload.lengths is None else asdict(workload.lengths),
                "tokens_of_a_word": asdict(self.tokens),
            },
            **document,
        }

    def _summary(self) -> str:
        highest, slo, chief = self.highest, self.test.slo, self.chief
        if chief is None:
            return self._unanswered()
        numbers = f"{chief.tokens_text}, {chief.errors_text}"
        if highest is not None:
            begin = f"{'Answers' if highest.is_exact else 'Proven:'} {highest.load:.0f}"
            goodput = per_second(chief.goodput or 0.0)
            return f"{begin} requests at once with {slo}: goodput {goodput}/s, {numbers}."
        if self.is_search:
            reasons = [phase.verdict.reason for phase in self.phases if phase.verdict is not None]
            reason = reasons[-1] if reasons else "no step was run to its end"
            return f"No number of requests at once was shown to hold {slo}: {reason}."
        goodput_text = "" if chief.goodput is None else f"goodput {per_second(chief.goodput)} of "
        rate = f"{goodput_text}{per_second(chief.requests_per_second)} requests/s"
        return f"{chief.phase.name}: {rate}, {numbers}."

    def _phase(self, phase: Measurement) -> dict[str, Any]:
        load = phase.phase
        return {
            **verdict_fields(phase),
            "requests_at_once": load.start if load.loop is Loop.closed else None,
            "offered_per_second": load.start if load.loop is Loop.open else None,
            "seconds": phase.seconds,
            "ended_early": phase.ended_early,
            "cpu_share": phase.cpu_share,
            "lag_p95_ms": proven_percentile(phase.lag, 95),
            "metrics": metrics(_stream(phase)),
        }


def result_of(runner: Runner, *, broken_off: bool) -> Result:
    """Return what a load test came to."""
    values: dict[str, Any] = {
        "phases": runner.phases,
        "circumstances": circumstances(),
        "steps": runner.steps,
        "ended": runner.ended,
        "broken_off": broken_off,
    }
    if isinstance(runner, GenerationRunner):
        return GenerationResult(test=runner.test, tokens=runner.tokens, **values)
    assert isinstance(runner, EngineRunner)
    best = runner.best_level if runner.levels else None
    probe = None if best is None else best.answered_per_second
    return EngineResult(test=runner.test, probe_per_second=probe, **values)


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


def _stream(phase: Measurement) -> StreamMeasurement:
    assert isinstance(phase, StreamMeasurement)
    return phase


def _percentiles(values: array[float], percents: Sequence[float]) -> dict[str, float | None]:
    return {f"p{percent:g}": proven_percentile(values, percent) for percent in percents}
