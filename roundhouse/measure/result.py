"""The result of a load test: what a search found, headline, table and JSON document."""

from __future__ import annotations

import datetime
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from engine_build import machine
from roundhouse.measure.measurement import Measurement, Outcome
from roundhouse.measure.options import Loop
from roundhouse.measure.runner import LoadTest
from roundhouse.measure.slo import Step, bounds, is_exact, machine_limit, tool_limit
from roundhouse.table import NOTHING, Table, table

VERSION = 7
"""Of the document's layout."""
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
class Result:
    """A load test with what was measured; `is_whole`: its loads are whole numbers."""

    test: LoadTest
    phases: Sequence[Measurement]
    circumstances: Circumstances
    workload: Mapping[str, Any] = field(default_factory=dict)
    """What was sent, for JSON."""
    steps: Sequence[Step] = ()
    """Of a search."""
    ended: str | None = None
    """Why the search ended before both ends of its result were known."""
    is_whole: bool = False
    broken_off: bool = False

    @property
    def chief(self) -> Measurement | None:
        """The phase that the report is about: the highest that held, else the last with answers."""
        if self.highest is not None:
            return self.highest.phase
        return next((phase for phase in reversed(self.phases) if phase.answered), None)

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
        return " ".join([self._summary(), *self._doubts(), *self._limits()])

    def _doubts(self) -> Iterator[str]:
        highest = self.highest
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

    def _limits(self) -> Iterator[str]:
        chief = self.chief
        if chief is None:
            return
        if not self.is_search and chief.phase.loop is Loop.closed:
            yield CLOSED_LOOP
        if (limit := self.tool_limits.get(chief.phase.name)) is not None:
            yield f"The load tool itself takes part in these numbers: {limit}."
        if (limit := machine_limit(chief)) is not None:
            yield f"The load tool's machine takes part in these numbers: {limit}."

    def _summary(self) -> str:
        slo, highest, chief = self.test.slo, self.highest, self.chief
        if not self.phases:
            return "Nothing was measured."
        if chief is None:
            failed = next((phase for phase in self.phases if phase.failed), None)
            return f"No request was answered{'' if failed is None else f': {failed.errors_text}'}."
        numbers = f"{chief.numbers}, {chief.errors_text}."
        if not self.is_search:
            return f"{chief.phase.name}: {numbers}"
        if highest is not None:
            verb = "Saturates at" if highest.is_exact else "Proven:"
            return f"{verb} {chief.phase.load} with {slo}: {numbers}"
        known = [(phase.phase, phase.verdict) for phase in self.phases if phase.verdict is not None]
        if not known:
            return f"No step was run to its end, so nothing is known of {slo}."
        lowest, verdict = min(known, key=lambda pair: pair[0].start)
        return (
            f"No load that was tried holds {slo}; the lowest was {lowest.load}: {verdict.reason}."
        )

    def table(self) -> Table:
        """Return a table with a row for each phase; the chief one stands out."""
        rows = [
            {
                "phase": f"{phase.phase.name} · {phase.seconds:.0f} s",
                **phase.cells(),
                "errors": f"{phase.failed:,}",
                "SLO": outcome_of(phase) or phase.ended_early or NOTHING,
            }
            for phase in self.phases
        ]
        heads = tuple(rows[0]) if rows else TEXT_COLUMNS
        right = [head for head in heads if head not in TEXT_COLUMNS]
        bold = [number for number, phase in enumerate(self.phases) if phase is self.chief]
        return table(heads, (row.values() for row in rows), right=right, chief=bold)

    def document(self) -> dict[str, Any]:
        """Return the result for JSON."""
        test, slo, highest = self.test, self.test.slo, self.highest
        place = next((n for n, m in enumerate(self.phases) if highest and m is highest.phase), None)
        return {
            "version": VERSION,
            "subject": test.subject,
            "headline": self.headline,
            "slo": None
            if slo is None
            else {
                "percentile": slo.percent,
                "limits_ms": {name or "latency": ms for name, ms in slo.limits.items()},
            },
            "highest": None
            if highest is None
            else {
                "load": highest.load,
                "phase": place,
                "lowest_missed": highest.lowest_missed,
                "exact": highest.is_exact,
            },
            "workload": dict(self.workload),
            "phases": [phase.document() for phase in self.phases],
            "ended": self.ended,
            "broken_off": self.broken_off,
            "tool_limits": self.tool_limits,
            "settings": {
                "command": test.options.command,
                "seed": test.client.seed,
                "url": test.destination.url,
                "signed": test.destination.region is not None,
                "timeout_seconds": test.client.timeout,
                "connections": test.client.connections,
                "warm_up_seconds": test.options.warm_up_seconds,
            },
            "circumstances": asdict(self.circumstances),
        }


def outcome_of(measurement: Measurement) -> Outcome | None:
    """Return a phase's outcome; None where nothing was to be held."""
    return None if measurement.verdict is None else measurement.verdict.outcome
