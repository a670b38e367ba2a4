"""The sentences that a reader takes away."""

from __future__ import annotations

from roundhouse.load_test.judgement.verdict import SENT_SHARE
from roundhouse.load_test.report.result import LoadResult, Numbers, PhaseResult
from roundhouse.load_test.wording import milliseconds, rate
from roundhouse.text import quantity

TOLD = ("p50", "p95", "p99")


def headline(result: LoadResult) -> str:
    """What came of it, with p50, p95 and p99, faults, and whatever makes the numbers doubtful."""
    parts = [
        _saturation(result) if result.saturation is not None else _phases(result),
        *_doubts(result),
    ]
    return " ".join(part for part in parts if part)


def numbers(found: Numbers) -> str:
    """`p50 3.20 ms, p95 …`; those without enough samples are left out."""
    told = [f"{name} {milliseconds(found[name])}" for name in TOLD if found.get(name) is not None]
    return ", ".join(told) if told else "too few answers for a percentile"


def _saturation(result: LoadResult) -> str:
    found, chief = result.saturation, result.chief
    assert found is not None
    slo = f"p99 ≤ {result.slo_ms:g} ms"
    if found.rate is None or chief is None:
        return _nothing_held(result, slo)
    each = result.inputs["rows_per_request"]
    rows = "" if each == 1 else f" ({rate(found.rate * each)} {result.inputs['rows']} a second)"
    most = "Saturates at" if found.exact else "Holds at least"
    return f"{most} {rate(found.rate)} requests a second{rows} with {slo}: there {numbers(chief.latency_ms)}, {_faults(chief)}."


def _nothing_held(result: LoadResult, slo: str) -> str:
    if not result.phases:
        return "Nothing was measured."
    judged = [each for each in result.phases if each.outcome is not None]
    if not judged:
        return f"No step was run to its end, so nothing is known of {slo}."
    lowest = min(judged, key=lambda each: each.start)
    told = "" if lowest.reason is None else f": {lowest.reason}"
    if lowest.loop == "closed":
        return f"No rate holds {slo}{told}."
    return f"No rate that was tried holds {slo}; the lowest was {rate(lowest.start)} requests a second{told}."


def _phases(result: LoadResult) -> str:
    chief = result.chief
    if chief is None:
        failed = next((each for each in result.phases if each.failed), None)
        return (
            "No request was answered."
            if failed is None
            else f"No request was answered: {_faults(failed)}."
        )
    which = "" if len(result.phases) == 1 else f" in {chief.name}, the last of {len(result.phases)}"
    told = f"{rate(chief.answered_per_second)} answers a second{_lost(chief)}{which}: {numbers(chief.latency_ms)}, {_faults(chief)}."
    if chief.loop == "closed":
        told += _closed(chief)
    return told


def _lost(chief: PhaseResult) -> str:
    """What was offered, where much less was answered."""
    is_short = (
        chief.loop == "open" and chief.answered_per_second < SENT_SHARE * chief.offered_per_second
    )
    return f" of {rate(chief.offered_per_second)} requests offered" if is_short else ""


def _closed(chief: PhaseResult) -> str:
    if chief.corrected_ms is None:
        return " A closed loop: users wait for answers before they ask again, so slow spells hold fewer requests than they would."
    return (
        f" Corrected for the requests that slow answers held back: {numbers(chief.corrected_ms)}."
    )


def _faults(phase: PhaseResult) -> str:
    if not phase.failed:
        return "no errors"
    worst = next(iter(phase.faults))
    return f"{quantity(phase.failed, 'error')} (most: {worst})"


def _doubts(result: LoadResult) -> list[str]:
    doubts = []
    if result.broken_off:
        doubts.append("Broken off: what is here was measured until then.")
    if result.stopped is not None:
        doubts.append(f"Stopped early: {result.stopped}.")
    chief = result.chief
    own = (
        []
        if chief is None
        else [each for each in result.tool_limits if each.startswith(f"{chief.name}: ")]
    )
    if chief is not None and own:
        doubts.append(
            f"The load tool itself takes part in these numbers: {own[0].removeprefix(f'{chief.name}: ')}."
        )
    if (
        result.saturation is not None
        and not result.saturation.exact
        and any(p.outcome == "tool's limit" for p in result.phases)
    ):
        doubts.append("Higher rates were the load tool's limit, not the server's.")
    return doubts
