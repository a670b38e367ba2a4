"""How many tokens prompts and answers have: log-normal distributions."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import NormalDist

P95 = 1.6448536269514722
"""Of the standard normal distribution."""
WIDEST = P95
"""Of a log-normal's sigma: with it the p95 lies furthest above the mean, 3.87 times."""
STRATA = 64
"""Lengths are drawn so evenly that few requests have the distribution's percentiles."""


@dataclass(frozen=True, kw_only=True)
class LogNormal:
    """A log-normal distribution of a number of tokens; `sigma` 0: always the same number."""

    mu: float
    sigma: float

    @property
    def mean(self) -> float:
        """The mean, in tokens."""
        return math.exp(self.mu + self.sigma**2 / 2)

    @property
    def p95(self) -> float:
        """The 95th percentile, in tokens."""
        return math.exp(self.mu + P95 * self.sigma)

    def quantile(self, share: float) -> float:
        """Return the number of tokens that this share of all are below."""
        return math.exp(self.mu + self.sigma * NormalDist().inv_cdf(share))

    def draw(self, chance: random.Random) -> list[int]:
        """Return STRATA numbers of tokens in random order, one of each equal share of all."""
        found = [round(self.quantile((i + chance.random()) / STRATA)) for i in range(STRATA)]
        chance.shuffle(found)
        return found

    def __str__(self) -> str:
        if not self.sigma:
            return f"{self.mean:.0f}"
        return f"mean {self.mean:.0f}, p95 {self.p95:.0f}"


def log_normal(mean: float, p95: float) -> LogNormal:
    """Return the log-normal distribution with a mean and a 95th percentile.

    A p95 that is not above the mean gives one number, the p95. One more than 3.87 means above it,
    which no log-normal has, gives the widest with that p95; its mean is larger than the declared.
    """
    if p95 <= mean:
        return LogNormal(mu=math.log(p95), sigma=0.0)
    sigma = P95 - math.sqrt(max(P95**2 - 2 * math.log(p95 / mean), 0.0))
    return LogNormal(mu=math.log(p95) - P95 * sigma, sigma=min(sigma, WIDEST))


def draw_lengths(
    prompt: LogNormal, output: LogNormal, most: int, chance: random.Random
) -> Iterator[tuple[int, int]]:
    """Yield tokens of prompts and of their answers, together at most `most`, without an end."""
    while True:
        for first, second in zip(prompt.draw(chance), output.draw(chance), strict=True):
            answer = min(max(second, 1), most - 1)
            yield min(max(first, 1), most - answer), answer
