"""The result of a load test of a text generator: headline, table and JSON document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from engine_build.card.render import milliseconds, per_second
from roundhouse.load_test.generation.load_test import GenerationTest
from roundhouse.load_test.generation.measurement import (
    GenerationMeasurement,
    metrics,
    p95,
    tool_limit,
)
from roundhouse.load_test.generation.requests import WordTokens
from roundhouse.load_test.measurement import Outcome, percentile, samples_needed
from roundhouse.load_test.options import Loop
from roundhouse.load_test.result import Circumstances, errors_text, outcome_of
from roundhouse.load_test.saturation import Step, bounds, is_exact, machine_limit
from roundhouse.report import table

VERSION = 1
"""Of the document's layout."""
AIPERF_SCHEMA = "1.5"
"""Of profile_export_aiperf.json, whose names and fields the metrics have."""
COLUMNS = (
    "phase", "requests/s", "goodput/s", "output tokens/s", "TTFT p50", "TTFT p95", "ITL p50",
    "ITL p95", "TPOT p50", "E2E p50", "errors", "SLO",
)  # fmt: skip
RIGHT = COLUMNS[1:-1]
NOTHING = "–"


@dataclass(frozen=True, kw_only=True)
class Knee:
    """The most requests at once within the SLO; `is_exact`: one more, or 4 %, missed it."""

    concurrency: int
    phase: GenerationMeasurement
    lowest_missed: float | None
    is_exact: bool


@dataclass(frozen=True, kw_only=True)
class GenerationResult:
    """A load test of a text generator with what was measured."""

    test: GenerationTest
    phases: Sequence[GenerationMeasurement]
    circumstances: Circumstances
    tokens: WordTokens
    steps: Sequence[Step] = ()
    """Of a search."""
    ended: str | None = None
    """Why the search ended before both ends of its result were known."""
    broken_off: bool = False

    @property
    def knee(self) -> Knee | None:
        """The knee that a search found; None where no number of requests at once held the SLO."""
        held, missed = bounds(self.steps)
        if held is None:
            return None
        phase = next(
            phase
            for phase in reversed(self.phases)
            if phase.phase.start == held and outcome_of(phase) is Outcome.held
        )
        return Knee(
            concurrency=int(held),
            phase=phase,
            lowest_missed=missed,
            is_exact=is_exact(self.steps, is_whole=True),
        )

    @property
    def chief(self) -> GenerationMeasurement | None:
        """The phase that the report is about: the knee, else the one with the most goodput."""
        knee = self.knee
        if knee is not None:
            return knee.phase
        phases = [phase for phase in self.phases if phase.answers]
        return max(phases, key=lambda phase: phase.goodput or phase.requests_per_second,
                   default=None)  # fmt: skip

    @property
    def tool_limits(self) -> dict[str, str]:
        """Reasons why the load tool itself was the limit, by phase."""
        limits = {phase.phase.name: tool_limit(phase, self.test.slo) for phase in self.phases}
        return {name: limit for name, limit in limits.items() if limit is not None}

    @property
    def slo_missed(self) -> bool:
        """Whether a phase missed the SLO or, in a search, no number of requests held it."""
        if not self.test.phases:
            return self.knee is None and not self.broken_off
        return any(outcome_of(phase) is Outcome.missed for phase in self.phases)

    @property
    def headline(self) -> str:
        """What a reader takes away, and what makes it doubtful."""
        parts = [self._summary()]
        if self.broken_off:
            parts.append("Broken off: what is here was measured until then.")
        chief = self.chief
        if chief is not None and (limit := self.tool_limits.get(chief.phase.name)) is not None:
            parts.append(f"The load tool itself takes part in these numbers: {limit}.")
        if chief is not None and (limit := machine_limit(chief)) is not None:
            parts.append(f"The load tool's machine takes part in these numbers: {limit}.")
        return " ".join(parts)

    @property
    def fault(self) -> str | None:
        """Why there is no answer at all; None where there is one."""
        return self.headline if self.chief is None else None

    @property
    def date(self) -> str:
        """When it ended."""
        return self.circumstances.date

    def table(self) -> Table:
        """Return a table with a row for each phase."""
        return table(COLUMNS, map(cells_of, self.phases), right=RIGHT)

    def document(self) -> dict[str, Any]:
        """Return the result for JSON; metrics have AIPerf's names and fields."""
        test, knee = self.test, self.knee
        target, workload = test.target, test.workload
        return {
            "version": VERSION,
            "metrics_schema": f"profile_export_aiperf.json {AIPERF_SCHEMA}",
            "subject": target.subject,
            "slo": None if test.slo is None else asdict(test.slo),
            "headline": self.headline,
            "knee": None
            if knee is None
            else {
                "concurrency": knee.concurrency,
                "lowest_missed": knee.lowest_missed,
                "exact": knee.is_exact,
                "goodput_requests_per_second": knee.phase.goodput,
                "ttft_p95_ms": p95(knee.phase.ttfts_ms),
                "itl_p95_ms": p95(knee.phase.gaps_ms),
                "output_tokens_per_second": knee.phase.output_tokens_per_second,
            },
            "phases": [_phase(phase) for phase in self.phases],
            "ended": self.ended,
            "tool_limits": self.tool_limits,
            "broken_off": self.broken_off,
            "workload": {
                "description": workload.description or str(workload.lengths),
                "sha256": workload.sha256,
                "lengths": None if workload.lengths is None else asdict(workload.lengths),
                "tokens_of_a_word": asdict(self.tokens),
            },
            "settings": {
                "command": test.options.command,
                "url": target.destination.url,
                "schema": target.schema,
                "signed": target.destination.region is not None,
                "seed": test.client.seed,
                "timeout_seconds": test.client.timeout,
                "warm_up_seconds": test.options.warm_up,
            },
            "circumstances": asdict(self.circumstances),
        }

    def _summary(self) -> str:
        knee, slo, chief = self.knee, self.test.slo, self.chief
        if chief is None:
            failed = next((phase for phase in self.phases if phase.failed), None)
            return f"No request was answered{'' if failed is None else f': {errors_text(failed)}'}."
        numbers = (
            f"{per_second(chief.output_tokens_per_second)} output tokens/s, "
            f"TTFT p95 {milliseconds(p95(chief.ttfts_ms))}, "
            f"ITL p95 {milliseconds(p95(chief.gaps_ms))}, {errors_text(chief)}"
        )
        if knee is not None and slo is not None:
            begin = f"{'Answers' if knee.is_exact else 'Proven:'} {knee.concurrency}"
            goodput = per_second(chief.goodput or 0.0)
            why = "" if self.ended is None else f": {self.ended}"
            more = "" if knee.is_exact else f" More may hold{why}."
            return f"{begin} requests at once with {slo}: goodput {goodput}/s, {numbers}.{more}"
        if not self.test.phases and slo is not None:
            reasons = [phase.verdict.reason for phase in self.phases if phase.verdict is not None]
            reason = reasons[-1] if reasons else "no step was run to its end"
            return f"No number of requests at once was shown to hold {slo}: {reason}."
        goodput_text = "" if chief.goodput is None else f"goodput {per_second(chief.goodput)} of "
        rate = f"{goodput_text}{per_second(chief.requests_per_second)} requests/s"
        return f"{chief.phase.name}: {rate}, {numbers}."


def shown_percentile(values: Sequence[float], percent: float) -> str:
    """Format a percentile in milliseconds; a dash when too few values lie beyond it."""
    enough = len(values) >= samples_needed(percent)
    return milliseconds(percentile(values, percent) if enough else None)


def cells_of(phase: GenerationMeasurement) -> tuple[str, ...]:
    """Return a phase's cells, by COLUMNS."""
    ttfts, gaps = phase.ttfts_ms, phase.gaps_ms
    tpots = [1000 * tpot for answer in phase.answers if (tpot := answer.tpot) is not None]
    return (
        phase.phase.name,
        per_second(phase.requests_per_second),
        NOTHING if phase.goodput is None else per_second(phase.goodput),
        per_second(phase.output_tokens_per_second),
        shown_percentile(ttfts, 50),
        shown_percentile(ttfts, 95),
        shown_percentile(gaps, 50),
        shown_percentile(gaps, 95),
        shown_percentile(tpots, 50),
        shown_percentile([1000 * answer.latency for answer in phase.answers], 50),
        f"{phase.failed:,}",
        outcome_of(phase) or phase.ended_early or NOTHING,
    )


def _phase(phase: GenerationMeasurement) -> dict[str, Any]:
    verdict = phase.verdict
    return {
        "name": phase.phase.name,
        "loop": phase.phase.loop,
        "requests_at_once": phase.phase.start if phase.phase.loop is Loop.closed else None,
        "offered_per_second": phase.phase.start if phase.phase.loop is Loop.open else None,
        "seconds": phase.seconds,
        "ended_early": phase.ended_early,
        "errors": dict(phase.errors.most_common()),
        "outcome": None if verdict is None else verdict.outcome,
        "reason": None if verdict is None else verdict.reason,
        "cpu_share": phase.cpu_share,
        "lag_p95_ms": phase.lag.percentile(95),
        "metrics": metrics(phase),
    }
