"""The search for the highest rate that holds the SLO: steps up until one misses, then halves of
what lies between. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from roundhouse.load_test.judgement.verdict import Outcome

STEP_UP = 1.5
STEP_DOWN = 0.5
CLOSE_ENOUGH = 1.04
MOST_STEPS = 24
LEAST_SHARE = 1 / 32
"""Of the first rate: the search goes no lower."""
FIRST_SHARE = 0.3
"""Of the throughput that a closed loop reached: where the search begins."""


@dataclass(frozen=True, kw_only=True)
class Tried:
    """One step: the rate offered and what it came to."""

    rate: float
    outcome: Outcome


@dataclass(frozen=True, kw_only=True)
class Saturation:
    """The highest rate that held; `missed` is the lowest that did not, None when none was met."""

    held: float | None
    missed: float | None

    @property
    def found(self) -> bool:
        """Whether both ends are known and lie close together."""
        return (
            self.held is not None
            and self.missed is not None
            and self.missed <= self.held * CLOSE_ENOUGH
        )


def bounds(tried: Sequence[Tried]) -> Saturation:
    """What is known so far.

    A rate that missed counts as missed when it missed twice, or when a lower one did.
    """
    counted: dict[float, int] = {}
    for each in tried:
        if each.outcome is not Outcome.held:
            counted[each.rate] = counted.get(each.rate, 0) + 1
    missed = min((rate for rate, times in counted.items() if times >= 2), default=None)
    held = [
        each.rate
        for each in tried
        if each.outcome is Outcome.held and (missed is None or each.rate < missed)
    ]
    return Saturation(held=max(held, default=None), missed=missed)


def next_rate(tried: Sequence[Tried], first: float) -> float | None:
    """The rate to try next; None when the search is over.

    A miss is tried once more: a shared machine has bad moments.
    """
    if not tried:
        return first
    if len(tried) >= MOST_STEPS:
        return None
    last = tried[-1]
    if last.outcome is Outcome.unproven:
        return None
    if last.outcome is not Outcome.held and sum(each.rate == last.rate for each in tried) < 2:
        return last.rate
    known = bounds(tried)
    if known.missed is None:
        return None if known.held is None else known.held * STEP_UP
    if known.held is None:
        return known.missed * STEP_DOWN if known.missed * STEP_DOWN >= first * LEAST_SHARE else None
    return None if known.found else (known.held * known.missed) ** 0.5
