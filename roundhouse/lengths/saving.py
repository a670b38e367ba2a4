"""The saving of another padding, from requests that were run in both, with its interval. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

RESAMPLINGS = 1000
INTERVAL = (2.5, 97.5)
Times = Sequence[Sequence[float]]
"""Milliseconds of each request (row) in each round (column)."""


@dataclass(frozen=True, kw_only=True)
class MeasuredSaving:
    """Share of the engine's time, and its 95 % interval; negative where the other takes longer."""

    share: float
    low: float
    high: float
    requests: int
    rounds: int

    @property
    def is_shown(self) -> bool:
        """Return whether the whole interval is a saving."""
        return self.low > 0


def measured_saving(before: Times, after: Times, *, is_sample: bool) -> MeasuredSaving:
    """Compare the same requests in two ways of padding, which took turns in every round.

    Times are medians over the rounds. The interval is a bootstrap over the rounds, both ways
    together, and, of a sample, over the requests too: other requests would have other lengths.
    """
    first, second = np.array(before, dtype=float), np.array(after, dtype=float)
    requests, rounds = first.shape
    random = np.random.default_rng(0)
    medians: dict[tuple[int, ...], tuple[np.ndarray, np.ndarray]] = {}
    shares = []
    for _ in range(RESAMPLINGS):
        # Few rounds are drawn alike again and again, and their medians take the most time.
        columns = tuple(np.sort(random.integers(rounds, size=rounds)))
        rows = random.integers(requests, size=requests) if is_sample else slice(None)
        if columns not in medians:
            medians[columns] = (
                np.median(first[:, columns], axis=1),
                np.median(second[:, columns], axis=1),
            )
        one, other = medians[columns]
        shares.append(_share(one[rows], other[rows]))
    return MeasuredSaving(
        share=_share(np.median(first, axis=1), np.median(second, axis=1)),
        low=float(np.percentile(shares, INTERVAL[0])),
        high=float(np.percentile(shares, INTERVAL[1])),
        requests=requests,
        rounds=rounds,
    )


def _share(before: np.ndarray, after: np.ndarray) -> float:
    return float(1 - after.sum() / before.sum())
