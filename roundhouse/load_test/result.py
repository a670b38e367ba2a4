"""The result of a load test with its headline."""

from __future__ import annotations

import datetime
import platform
from collections.abc import Sequence
from dataclasses import dataclass

from engine_build import machine
from engine_build.card.render import milliseconds, per_second
from roundhouse.load_test.load_test import LoadTest
from roundhouse.load_test.measurement import Latencies, Measurement, Outcome
from roundhouse.load_test.options import Loop
from roundhouse.load_test.saturation import ANSWERED_SHARE, Step, bounds, is_exact, tool_limit
from roundhouse.text import quantity

HEADLINE_PERCENTILES = (50.0, 95.0, 99.0)
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
    stopped: str | None = None
    """The stopping condition that was met."""
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
    def chief_tool_limit(self) -> str | None:
        """Why the load tool took part in the numbers of the chief phase; None: it did not."""
        return None if self.chief is None else self.tool_limits.get(self.chief.phase.name)

    @property
    def slo_missed(self) -> bool:
        """Whether a phase missed the SLO or, in a search, no rate held it."""
        if self.saturation is not None:
            return self.saturation.rate is None and not self.broken_off
        return any(outcome_of(phase) is Outcome.missed for phase in self.phases)

    @property
    def headline(self) -> str:
        """What a reader takes away: rate, percentiles, errors, and what makes them doubtful."""
        saturation = self.saturation
        summary = _phases_summary(self) if saturation is None else _search_summary(self, saturation)
        return " ".join([summary, *_doubts(self)])


def outcome_of(measurement: Measurement) -> Outcome | None:
    """Return a phase's outcome; None where nothing was to be held."""
    return None if measurement.verdict is None else measurement.verdict.outcome


def percentiles_text(latencies: Latencies) -> str:
    """Format `p50 3.20 ms, p95 …`; those without enough samples are left out."""
    known = [(percentile, latencies.percentile(percentile)) for percentile in HEADLINE_PERCENTILES]
    texts = [f"p{name:g} {milliseconds(value)}" for name, value in known if value is not None]
    return ", ".join(texts) if texts else "too few answers for a percentile"


def _search_summary(result: LoadResult, saturation: Saturation) -> str:
    slo, chief = f"p99 ≤ {result.test.slo_ms:g} ms", result.chief
    if saturation.rate is None or chief is None:
        return _nothing_held(result, slo)
    inputs, rate = result.test.inputs, per_second(saturation.rate)
    rows = f" ({per_second(saturation.rate * inputs.rows_per_request)} {inputs.rows} a second)"
    return (
        f"{'Saturates at' if saturation.exact else 'Holds at least'} {rate} requests a second"
        f"{'' if inputs.rows_per_request == 1 else rows} with {slo}: "
        f"there {percentiles_text(chief.latency)}, {_errors(chief)}."
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
        return "No request was answered" + ("." if failed is None else f": {_errors(failed)}.")
    count, is_open = len(result.phases), chief.phase.loop is Loop.open
    is_short = chief.answered_per_second < ANSWERED_SHARE * chief.offered_per_second
    offered = f" of {per_second(chief.offered_per_second)} requests offered"
    summary = (
        f"{per_second(chief.answered_per_second)} answers a second"
        f"{offered if is_short and is_open else ''}"
        f"{'' if count == 1 else f' in {chief.phase.name}, the last of {count}'}: "
        f"{percentiles_text(chief.latency)}, {_errors(chief)}."
    )
    if is_open:
        return summary
    if chief.expected_interval_seconds is None:
        return f"{summary} {CLOSED_LOOP}"
    corrected = percentiles_text(chief.corrected)
    return f"{summary} Corrected for the requests that slow answers held back: {corrected}."


def _errors(phase: Measurement) -> str:
    if not phase.failed:
        return "no errors"
    worst, _ = phase.errors.most_common(1)[0]
    return f"{quantity(phase.failed, 'error')} (most: {worst})"


def _doubts(result: LoadResult) -> list[str]:
    doubts, saturation = [], result.saturation
    if result.broken_off:
        doubts.append("Broken off: what is here was measured until then.")
    if result.stopped is not None:
        doubts.append(f"Stopped early: {result.stopped}.")
    if saturation is None:
        doubts += [
            f"{measurement.phase.name} missed the SLO: {measurement.verdict.reason}."
            for measurement in result.phases
            if measurement.verdict is not None and measurement.verdict.outcome is Outcome.missed
        ]
    elif not saturation.exact and Outcome.tool in map(outcome_of, result.phases):
        doubts.append("Higher rates were the load tool's limit, not the server's.")
    if (limit := result.chief_tool_limit) is not None:
        doubts.append(f"The load tool itself takes part in these numbers: {limit}.")
    return doubts
