"""Whether a phase held the SLO, and whether the load tool itself was in the way."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from roundhouse.load_test.judgement.measured import Measured
from roundhouse.load_test.latencies import enough
from roundhouse.load_test.traffic import Loop
from roundhouse.load_test.wording import milliseconds, rate
from roundhouse.text import quantity

SLO_PERCENTILE = 99.0
BELOW_P99 = (95.0, 50.0)
"""What fewer answers prove: p99 is not below these."""
BUSY = 0.9
"""Share of a core from which on a load process is taken to be the limit."""
LAG_SHARE = 0.2
"""Share of the SLO, or of the latency, that the tool's own lateness may take."""
LEAST_LAG_MS = 1.0
SENT_SHARE = 0.98
"""Share of the offered rate that must be answered while requests are sent; what is less piles up.
"""
LEAST_PILED_UP = 20


class Outcome(StrEnum):
    """What a phase came to."""

    held = "held"
    missed = "missed"
    unproven = "too few samples"
    tool = "tool's limit"


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """An outcome and the reason for it, in words."""

    outcome: Outcome
    reason: str


def tool_limit(measured: Measured, slo_ms: float | None = None) -> str | None:
    """Why this phase's numbers are the load tool's own; None when they are the server's."""
    if measured.busiest_cpu_share > BUSY:
        return f"a load process used {measured.busiest_cpu_share:.0%} of a core"
    late, took = (
        measured.lag.milliseconds(SLO_PERCENTILE),
        measured.latency.milliseconds(SLO_PERCENTILE),
    )
    if late is None or took is None:
        return None
    allowed = max(LEAST_LAG_MS, LAG_SHARE * (took if slo_ms is None else min(slo_ms, took)))
    return f"its own p99 lag was {milliseconds(late)}" if late > allowed else None


def verdict(measured: Measured, slo_ms: float) -> Verdict:
    """A phase against the SLO: p99 within it, no fault, nothing piled up, and enough samples to say
    so.
    """
    found = _missed(measured, slo_ms)
    limit = tool_limit(measured, slo_ms)
    if found is not None:
        return (
            found
            if limit is None or _server_missed(measured, slo_ms)
            else Verdict(outcome=Outcome.tool, reason=limit)
        )
    p99 = measured.latency.milliseconds(SLO_PERCENTILE)
    if p99 is None:
        reason = (
            f"{quantity(len(measured.latency), 'answer')}; p99 needs {enough(SLO_PERCENTILE):,}"
        )
        return Verdict(outcome=Outcome.unproven, reason=reason)
    return Verdict(outcome=Outcome.held, reason=f"p99 {milliseconds(p99)} within {slo_ms:g} ms")


def _server_missed(measured: Measured, slo_ms: float) -> bool:
    """Whether the phase is missed even by the time that a request took once it had left the tool."""
    took = measured.service.milliseconds(SLO_PERCENTILE)
    return measured.failed > 0 or (
        took is not None and took > slo_ms and measured.busiest_cpu_share <= BUSY
    )


def _missed(measured: Measured, slo_ms: float) -> Verdict | None:
    if measured.failed:
        worst, _ = measured.faults.most_common(1)[0]
        return Verdict(
            outcome=Outcome.missed, reason=f"{quantity(measured.failed, 'fault')}: {worst}"
        )
    if measured.ended_early is not None:
        return Verdict(outcome=Outcome.missed, reason=measured.ended_early)
    p99 = measured.latency.milliseconds(SLO_PERCENTILE)
    if p99 is not None and p99 > slo_ms:
        return Verdict(
            outcome=Outcome.missed, reason=f"p99 {milliseconds(p99)} above {slo_ms:g} ms"
        )
    lower = ((each, measured.latency.milliseconds(each)) for each in BELOW_P99 if p99 is None)
    for percentile, took in lower:
        if took is not None and took > slo_ms:
            return Verdict(
                outcome=Outcome.missed,
                reason=f"even p{percentile:g} {milliseconds(took)} is above {slo_ms:g} ms",
            )
    behind = measured.intended - sum(each.answered for each in measured.within)
    if measured.phase.loop is Loop.open and behind > max(
        LEAST_PILED_UP, (1 - SENT_SHARE) * measured.intended
    ):
        offered, answered = rate(measured.offered_per_second), rate(measured.answered_per_second)
        told = f"{answered} of {offered} a second were answered: requests piled up"
        return Verdict(outcome=Outcome.missed, reason=told)
    return None
