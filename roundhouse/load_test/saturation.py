"""Verdicts on phases against an SLO, and the search for the highest rate that holds it. Pure."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from engine_build.card.render import milliseconds, per_second
from roundhouse.load_test.measurement import Measurement, Outcome, Verdict, samples_needed
from roundhouse.load_test.options import Loop
from roundhouse.text import quantity

SLO_PERCENTILE = 99.0
LOWER_PERCENTILES = (95.0, 50.0)
"""Fewer answers prove these, and p99 is not below them."""
BUSY_SHARE = 0.9
"""Share of a core from which on the load tool is taken to be the limit."""
BUSY_MACHINE_SHARE = 0.95
"""Share of all cores of the tool's machine from which on it is taken to be the limit."""
LAG_SHARE = 0.2
"""Share of the SLO, or of the latency, that the tool's own lateness may take."""
MIN_LAG_MS = 1.0
ANSWERED_SHARE = 0.98
"""Share of the offered requests that must be answered while requests are sent."""
MIN_PILED_UP = 20
STEP_UP = 1.5
STEP_DOWN = 0.5
CLOSE_ENOUGH = 1.04
MAX_STEPS = 40
MIN_SHARE = 1 / 32
"""Of the first rate: the search goes no lower."""


def tool_limit(measurement: Measurement, slo_ms: float | None = None) -> str | None:
    """Return why a phase's numbers are the load tool's own; None when they are the server's."""
    latency_ms = measurement.latency.percentile(SLO_PERCENTILE)
    return late_tool(measurement, SLO_PERCENTILE, latency_ms, slo_ms)


def late_tool(
    measurement: Measurement, percentile: float, latency_ms: float | None, slo_ms: float | None
) -> str | None:
    """Return that the tool was busy or late itself, by a percentile; None where it was neither.

    `latency_ms`: that percentile of what the SLO is of.
    """
    if measurement.cpu_share > BUSY_SHARE:
        return f"the load tool used {measurement.cpu_share:.0%} of a core"
    lag = measurement.lag.percentile(percentile)
    if lag is None or latency_ms is None:
        return None
    shorter = latency_ms if slo_ms is None else min(slo_ms, latency_ms)
    is_late = lag > max(MIN_LAG_MS, LAG_SHARE * shorter)
    return f"its own p{percentile:g} lag was {milliseconds(lag)}" if is_late else None


def machine_limit(measurement: Measurement) -> str | None:
    """Return that the tool's machine is busy; None where it is not, or it is not known."""
    share = measurement.machine_share
    if share <= BUSY_MACHINE_SHARE:
        return None
    return f"this machine's {os.cpu_count()} cores were {share:.0%} busy"


def verdict(measurement: Measurement, slo_ms: float) -> Verdict:
    """Return whether p99 is within the SLO, without errors, pile-up, or too few samples."""
    miss, limit = _miss(measurement, slo_ms), tool_limit(measurement, slo_ms)
    if miss is not None:
        service = measurement.service.percentile(SLO_PERCENTILE)
        is_slow = service is not None and service > slo_ms and measurement.cpu_share <= BUSY_SHARE
        if limit is None or measurement.failed or is_slow:
            return Verdict(outcome=Outcome.missed, reason=miss)
        return Verdict(outcome=Outcome.tool, reason=limit)
    p99 = measurement.latency.percentile(SLO_PERCENTILE)
    if p99 is None:
        return too_few(len(measurement.latency), SLO_PERCENTILE)
    return Verdict(outcome=Outcome.held, reason=f"p99 {milliseconds(p99)} within {slo_ms:g} ms")


def too_few(answers: int, percentile: float) -> Verdict:
    """Return that so many answers prove no such percentile."""
    reason = f"{quantity(answers, 'answer')}; p{percentile:g} needs {samples_needed(percentile):,}"
    return Verdict(outcome=Outcome.unproven, reason=reason)


def failure(measurement: Measurement) -> str | None:
    """Return the errors of a phase, or why it ended early; None where there is neither."""
    if measurement.failed:
        worst, _ = measurement.errors.most_common(1)[0]
        return f"{quantity(measurement.failed, 'error')}: {worst}"
    return measurement.ended_early


def _miss(measurement: Measurement, slo_ms: float) -> str | None:
    if (reason := failure(measurement)) is not None:
        return reason
    p99 = measurement.latency.percentile(SLO_PERCENTILE)
    if p99 is not None and p99 > slo_ms:
        return f"p99 {milliseconds(p99)} above {slo_ms:g} ms"
    for percentile in LOWER_PERCENTILES if p99 is None else ():
        latency = measurement.latency.percentile(percentile)
        if latency is not None and latency > slo_ms:
            return f"even p{percentile:g} {milliseconds(latency)} is above {slo_ms:g} ms"
    unanswered = measurement.offered - sum(s.answered for s in measurement.sending_seconds)
    allowed = max(MIN_PILED_UP, (1 - ANSWERED_SHARE) * measurement.offered)
    if measurement.phase.loop is Loop.open and unanswered > allowed:
        offered = per_second(measurement.offered_per_second)
        answered = per_second(measurement.answered_per_second)
        return f"{answered} of {offered} a second were answered: requests piled up"
    return None


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step of the search: the rate offered and its outcome."""

    rate: float
    outcome: Outcome


def bounds(steps: Sequence[Step]) -> tuple[float | None, float | None]:
    """Return the highest rate that held and the lowest that missed; None where there is none.

    A rate counts by the majority of its steps; a hold counts below the lowest miss.
    """
    scores: Counter[float] = Counter()
    for step in steps:
        scores[step.rate] += 1 if step.outcome is Outcome.held else -1
    missed = min((rate for rate, score in scores.items() if score < 0), default=None)
    held = [rate for rate, s in scores.items() if s > 0 and (missed is None or rate < missed)]
    return max(held, default=None), missed


def next_rate(steps: Sequence[Step], first: float, *, is_whole: bool = False) -> float | None:
    """Return the rate of the next step; None when the search is over.

    `is_whole`: rates are whole numbers, such as requests at once. A rate has held, or missed, when
    two steps of at most three say so: one bad or one good moment of a shared machine decides
    neither, and the result leans neither up nor down.
    """
    if not steps:
        return first
    if len(steps) >= MAX_STEPS or steps[-1].outcome is Outcome.unproven:
        return None
    last = steps[-1].rate
    if not _is_decided(steps, last):
        return last
    held, missed = bounds(steps)
    if held is None:
        lower = last * STEP_DOWN
        lower = float(math.floor(lower)) if is_whole else lower
        return lower if lower >= (1 if is_whole else first * MIN_SHARE) else None
    if missed is None:
        return float(math.ceil(held * STEP_UP)) if is_whole else held * STEP_UP
    if _is_close(held, missed, is_whole):
        return None
    middle = math.sqrt(held * missed)
    return min(max(float(round(middle)), held + 1), missed - 1) if is_whole else middle


def _is_close(held: float, missed: float, is_whole: bool) -> bool:
    return missed <= held * CLOSE_ENOUGH or (is_whole and missed <= held + 1)


def is_exact(steps: Sequence[Step], *, is_whole: bool = False) -> bool:
    """Return whether the bounds are close, decided, and the miss is the server's own."""
    held, missed = bounds(steps)
    if held is None or missed is None or not _is_close(held, missed, is_whole):
        return False
    is_own = any(step.rate == missed and step.outcome is Outcome.missed for step in steps)
    return is_own and _is_decided(steps, held) and _is_decided(steps, missed)


def _is_decided(steps: Sequence[Step], rate: float) -> bool:
    held = [step.outcome is Outcome.held for step in steps if step.rate == rate]
    return max(held.count(True), held.count(False)) >= 2
