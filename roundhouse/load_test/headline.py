"""The summary of a load test that its reader takes away."""

from __future__ import annotations

from engine_build.card.render import milliseconds, per_second
from roundhouse.load_test.options import Loop
from roundhouse.load_test.result import LoadResult, Numbers, PhaseResult
from roundhouse.load_test.saturation import ANSWERED_SHARE, Outcome
from roundhouse.text import quantity

HEADLINE_PERCENTILES = ("p50", "p95", "p99")
CLOSED_LOOP = (
    "A closed loop: users wait for answers before they ask again, "
    "so slow spells hold fewer requests than they would."
)


def headline(result: LoadResult) -> str:
    """Return what a reader takes away: rate, percentiles, errors, and what makes them doubtful."""
    main = _phases_summary(result) if result.saturation is None else _saturation_summary(result)
    return " ".join([main, *_doubts(result)])


def percentiles_text(numbers: Numbers) -> str:
    """Format `p50 3.20 ms, p95 …`; those without enough samples are left out."""
    known = [(name, numbers[name]) for name in HEADLINE_PERCENTILES]
    texts = [f"{name} {milliseconds(value)}" for name, value in known if value is not None]
    return ", ".join(texts) if texts else "too few answers for a percentile"


def _saturation_summary(result: LoadResult) -> str:
    saturation, chief = result.saturation, result.chief
    assert saturation is not None
    slo = f"p99 ≤ {result.slo_ms:g} ms"
    if saturation.rate is None or chief is None:
        return _nothing_held(result, slo)
    count, noun = result.inputs["rows_per_request"], result.inputs["rows"]
    rows = "" if count == 1 else f" ({per_second(saturation.rate * count)} {noun} a second)"
    most = "Saturates at" if saturation.exact else "Holds at least"
    return (
        f"{most} {per_second(saturation.rate)} requests a second{rows} with {slo}: "
        f"there {percentiles_text(chief.latency_ms)}, {_errors(chief)}."
    )


def _nothing_held(result: LoadResult, slo: str) -> str:
    if not result.phases:
        return "Nothing was measured."
    with_outcome = [phase for phase in result.phases if phase.outcome is not None]
    if not with_outcome:
        return f"No step was run to its end, so nothing is known of {slo}."
    lowest = min(with_outcome, key=lambda phase: phase.start)
    reason = "" if lowest.reason is None else f": {lowest.reason}"
    if lowest.loop == Loop.closed:
        return f"No rate holds {slo}{reason}."
    return (
        f"No rate that was tried holds {slo}; "
        f"the lowest was {per_second(lowest.start)} requests a second{reason}."
    )


def _phases_summary(result: LoadResult) -> str:
    chief = result.chief
    if chief is None:
        failed = next((phase for phase in result.phases if phase.failed), None)
        return "No request was answered" + ("." if failed is None else f": {_errors(failed)}.")
    which = "" if len(result.phases) == 1 else f" in {chief.name}, the last of {len(result.phases)}"
    is_short = chief.answered_per_second < ANSWERED_SHARE * chief.offered_per_second
    offered = f" of {per_second(chief.offered_per_second)} requests offered"
    summary = (
        f"{per_second(chief.answered_per_second)} answers a second"
        f"{offered if is_short and chief.loop == Loop.open else ''}{which}: "
        f"{percentiles_text(chief.latency_ms)}, {_errors(chief)}."
    )
    if chief.loop == Loop.open:
        return summary
    if chief.corrected_ms is None:
        return f"{summary} {CLOSED_LOOP}"
    corrected = percentiles_text(chief.corrected_ms)
    return f"{summary} Corrected for the requests that slow answers held back: {corrected}."


def _errors(phase: PhaseResult) -> str:
    if not phase.failed:
        return "no errors"
    return f"{quantity(phase.failed, 'error')} (most: {next(iter(phase.errors))})"


def _doubts(result: LoadResult) -> list[str]:
    doubts = []
    if result.broken_off:
        doubts.append("Broken off: what is here was measured until then.")
    if result.stopped is not None:
        doubts.append(f"Stopped early: {result.stopped}.")
    if result.saturation is None:
        misses = [phase for phase in result.phases if phase.outcome == Outcome.missed]
        doubts += [f"{phase.name} missed the SLO: {phase.reason}." for phase in misses]
    elif not result.saturation.exact and any(p.outcome == Outcome.tool for p in result.phases):
        doubts.append("Higher rates were the load tool's limit, not the server's.")
    if result.chief_tool_limit is not None:
        limit = result.chief_tool_limit
        doubts.append(f"The load tool itself takes part in these numbers: {limit}.")
    return doubts
