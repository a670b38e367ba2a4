"""How much of an engine's rate counts where requests come at random: small batches let them pile
up.
"""

from __future__ import annotations

import math

USUAL_SHARE = 0.5
"""AWS's safety factor: the share of a capacity at which one more instance is asked for, unless the
file says otherwise.
"""
LEAST_COUNTED = 0.25
"""At an eighth of an engine's rate hardly a request waits, whatever its batches."""
BEYOND = 100
"""One request of so many may wait longer."""


def counted_share(batch: int, waits: float) -> float:
    """The share of an engine's rate, LEAST_COUNTED to 1, of which USUAL_SHARE keeps the SLO with
    Poisson arrivals.

    `waits`: how many runs of a batch of this size the SLO lets a request wait, before its own. One
    from batch 8 on.
    """
    exact = min(1.0, max(LEAST_COUNTED, bearable_load(batch, waits) / USUAL_SHARE))
    return math.floor(exact * 1000) / 1000


def bearable_load(batch: int, waits: float) -> float:
    """The load, 0 to 1, at which one in BEYOND waits longer, for batches that take equally long
    whatever they hold.

    Lundberg's exponent: the chance of more than k requests ahead falls as exp(-theta k) where load
    x (e^theta - 1) = theta. A
    request that finds a batch under way has half of it behind itself on average, which one that is
    alone in its batch has not.
    """
    ahead = max(waits, batch * (waits - 0.5))
    theta = math.log(BEYOND) / ahead if ahead > 0 else math.inf
    return 0.0 if theta > math.log(2**63) else theta / math.expm1(theta)
