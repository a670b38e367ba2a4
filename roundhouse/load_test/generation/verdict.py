"""Verdicts on phases of load on a text generator, against its SLO. Pure."""

from __future__ import annotations

from engine_build.card.render import milliseconds
from roundhouse.load_test.generation.measurement import (
    GenerationMeasurement,
    GenerationSlo,
)
from roundhouse.load_test.measurement import Outcome, Verdict, percentile, samples_needed
from roundhouse.load_test.saturation import BUSY_SHARE
from roundhouse.text import quantity

SLO_PERCENTILE = 95.0
LAG_SHARE = 0.2
"""Share of the time to the first token that the tool's own lateness may take."""


def generation_verdict(measurement: GenerationMeasurement, slo: GenerationSlo) -> Verdict:
    """Return whether p95 of both times is within the SLO, without errors or too few answers."""
    limit = tool_limit(measurement, slo)
    miss = _miss(measurement, slo)
    if miss is not None and (limit is None or measurement.failed):
        return Verdict(outcome=Outcome.missed, reason=miss)
    if limit is not None:
        return Verdict(outcome=Outcome.tool, reason=limit)
    answers, needed = len(measurement.answers), samples_needed(SLO_PERCENTILE)
    if answers < needed:
        reason = f"{quantity(answers, 'answer')}; p95 needs {needed:,}"
        return Verdict(outcome=Outcome.unproven, reason=reason)
    return Verdict(outcome=Outcome.held, reason=f"{_times(measurement)}: within {slo}")


def tool_limit(measurement: GenerationMeasurement, slo: GenerationSlo | None) -> str | None:
    """Return why a phase's numbers are the load tool's own; None when they are the server's."""
    if measurement.cpu_share > BUSY_SHARE:
        return f"the load tool used {measurement.cpu_share:.0%} of a core"
    lag, ttft = measurement.lag.percentile(SLO_PERCENTILE), p95(measurement.ttfts_ms)
    if lag is None or ttft is None:
        return None
    allowed = max(1.0, LAG_SHARE * (ttft if slo is None else min(slo.ttft_ms, ttft)))
    return f"its own p95 lag was {milliseconds(lag)}" if lag > allowed else None


def p95(values: list[float]) -> float | None:
    """Return the 95th percentile, of however few values; None of none."""
    return percentile(values, SLO_PERCENTILE)


def _times(measurement: GenerationMeasurement) -> str:
    ttft, gap = p95(measurement.ttfts_ms), p95(measurement.gaps_ms)
    return f"TTFT p95 {milliseconds(ttft)}, ITL p95 {milliseconds(gap)}"


def _miss(measurement: GenerationMeasurement, slo: GenerationSlo) -> str | None:
    """Return the first thing that the SLO does not allow; of few answers, only what is certain."""
    if measurement.failed:
        worst, _ = measurement.errors.most_common(1)[0]
        return f"{quantity(measurement.failed, 'error')}: {worst}"
    if measurement.ended_early is not None:
        return measurement.ended_early
    is_proven = len(measurement.answers) >= samples_needed(SLO_PERCENTILE)
    name = SLO_PERCENTILE if is_proven else 50.0
    for title, values, limit in (
        ("TTFT", measurement.ttfts_ms, slo.ttft_ms),
        ("ITL", measurement.gaps_ms, slo.itl_ms),
    ):
        value = percentile(values, name)
        if value is not None and value > limit:
            return f"{title} p{name:g} {milliseconds(value)} above {limit:g} ms"
    return None
