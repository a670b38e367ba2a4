"""Paired rounds: everyone in every round, in random order; comparisons are ratios within a round."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

Result = TypeVar("Result")
Round = Mapping[str, Result]


@dataclass(frozen=True, kw_only=True)
class Spread:
    """A median over rounds, and the lowest and highest round."""

    median: float
    low: float
    high: float


def rounds(
    contenders: Mapping[str, Callable[[], Result]],
    count: int,
    *,
    seed: int = 0,
    say: Callable[[str], None] = print,
) -> list[dict[str, Result]]:
    """Runs every contender once a round, in an order drawn anew each time."""
    order, found = random.Random(seed), []
    for number in range(count):
        names = list(contenders)
        order.shuffle(names)
        results = {name: contenders[name]() for name in names}
        found.append(results)
        say(
            f"  round {number + 1} of {count}: "
            + ", ".join(f"{name} {_shown(results[name])}" for name in sorted(results))
        )
    return found


def spread(values: Sequence[float]) -> Spread:
    """Median, lowest and highest of one value a round."""
    return Spread(median=statistics.median(values), low=min(values), high=max(values))


def ratio(found: Sequence[Mapping[str, float]], above: str, below: str) -> Spread:
    """One contender over another, paired by round."""
    return spread([one[above] / one[below] for one in found])


def _shown(value: object) -> str:
    return f"{value:,.4g}" if isinstance(value, (int, float)) else str(value)
