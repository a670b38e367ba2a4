"""Why a load test's result is no measurement of a capacity. Pure."""

from __future__ import annotations

from roundhouse.load_test.judgement.saturation import CLOSE_ENOUGH
from roundhouse.load_test.report.result import LoadResult


def unfit_search(result: LoadResult) -> str | None:
    """Why a search did not find the highest rate that holds the SLO; None when it did."""
    found = result.saturation
    if result.broken_off:
        return "the load test was broken off"
    if found is None:
        return "the load test searched for no saturation point"
    if found.rate is None:
        return "no rate held the SLO"
    limit = _tool_limit(result)
    if limit is not None:
        return f"the load tool was part of what it measured ({limit})"
    if not found.exact:
        outcomes = [each for each in result.phases if each.outcome not in ("held", "missed")]
        reason = (
            f" ({outcomes[-1].name}: {outcomes[-1].outcome}, {outcomes[-1].reason})"
            if outcomes
            else ""
        )
        return f"the highest rate was not found, only that {found.rate:g} a second holds{reason}"
    return None


def unfit_hold(result: LoadResult) -> str | None:
    """Why a rate was not held; None when it was."""
    if result.broken_off:
        return "the load test was broken off"
    limit = _tool_limit(result)
    if limit is not None:
        return f"the load tool was part of what it measured ({limit})"
    (phase,) = result.phases
    if phase.outcome == "held":
        return None
    return f"{phase.start:g} a second were not held for {phase.seconds:g} s ({phase.reason})"


def next_lower(rate: float) -> float:
    """The rate that is held next, once one was not: lower by the search's own accuracy."""
    return rate / CLOSE_ENOUGH


def _tool_limit(result: LoadResult) -> str | None:
    chief = result.chief
    own = (
        []
        if chief is None
        else [each for each in result.tool_limits if each.startswith(f"{chief.name}: ")]
    )
    return own[0] if own else None
