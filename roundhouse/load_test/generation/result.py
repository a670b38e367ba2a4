"""The result of a load test of a text generator: headline, table and JSON document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from engine_build.card.render import milliseconds, per_second
from roundhouse.load_test.generation.load_test import GenerationTest
from roundhouse.load_test.generation.measurement import (
    GenerationMeasurement,
    generation_tool_limit,
    metrics,
    p95,
)
from roundhouse.load_test.generation.requests import WordTokens
from roundhouse.load_test.measurement import proven_percentile
from roundhouse.load_test.options import Loop
from roundhouse.load_test.result import NOTHING, Result, errors_text, outcome_of, verdict_fields

VERSION = 1
"""Of the document's layout."""
AIPERF_SCHEMA = "1.5"
"""Of profile_export_aiperf.json, whose names and fields the metrics have."""


@dataclass(frozen=True, kw_only=True)
class GenerationResult(Result[GenerationTest, GenerationMeasurement]):
    """A load test of a text generator with what was measured."""

    tokens: WordTokens
    is_whole = True
    columns = (
        "phase", "requests/s", "goodput/s", "output tokens/s", "TTFT p50", "TTFT p95", "ITL p50",
        "ITL p95", "TPOT p50", "E2E p50", "errors", "SLO",
    )  # fmt: skip
    nothing_held = "no number of requests at once was shown to hold the SLO"

    @property
    def chief(self) -> GenerationMeasurement | None:
        """The knee, else the phase with the most goodput."""
        if self.highest is not None:
            return self.highest.phase
        phases = [phase for phase in self.phases if phase.answers]
        return max(phases, key=lambda phase: phase.goodput or phase.requests_per_second,
                   default=None)  # fmt: skip

    def tool_limit(self, phase: GenerationMeasurement) -> str | None:
        """Return why a phase's numbers are the load tool's own; None when they are not."""
        return generation_tool_limit(phase, self.test.slo)

    def cells(self, phase: GenerationMeasurement) -> dict[str, str]:
        """Return a phase's cells by column."""
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
        workload = test.workload
        document["settings"]["schema"] = test.schema
        return {
            "version": VERSION,
            "metrics_schema": f"profile_export_aiperf.json {AIPERF_SCHEMA}",
            "slo": None if test.slo is None else asdict(test.slo),
            "knee": None
            if highest is None
            else {
                "concurrency": int(highest.load),
                "lowest_missed": highest.lowest_missed,
                "exact": highest.is_exact,
                "goodput_requests_per_second": highest.phase.goodput,
                "ttft_p95_ms": p95(highest.phase.ttfts_ms),
                "itl_p95_ms": p95(highest.phase.gaps_ms),
                "output_tokens_per_second": highest.phase.output_tokens_per_second,
            },
            "phases": [_phase(phase) for phase in self.phases],
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
        numbers = (
            f"{per_second(chief.output_tokens_per_second)} output tokens/s, "
            f"TTFT p95 {milliseconds(p95(chief.ttfts_ms))}, "
            f"ITL p95 {milliseconds(p95(chief.gaps_ms))}, {errors_text(chief)}"
        )
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


def _phase(phase: GenerationMeasurement) -> dict[str, Any]:
    return {
        **verdict_fields(phase),
        "requests_at_once": phase.phase.start if phase.phase.loop is Loop.closed else None,
        "offered_per_second": phase.phase.start if phase.phase.loop is Loop.open else None,
        "seconds": phase.seconds,
        "ended_early": phase.ended_early,
        "cpu_share": phase.cpu_share,
        "lag_p95_ms": phase.lag.percentile(95),
        "metrics": metrics(phase),
    }
