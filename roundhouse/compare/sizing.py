"""How many instances a demand needs, and what they cost. Pure."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from onboarding.prices import HOURS_A_MONTH
from roundhouse.errors import UsageError

UNITS = {
    "s": 1.0,
    "sec": 1.0,
    "second": 1.0,
    "min": 60.0,
    "minute": 60.0,
    "h": 3600.0,
    "hour": 3600.0,
}
MOST_PER_SECOND = 1e7
MILLION = 1e6
SECONDS_AN_HOUR = 3600


def parse_demand(text: str) -> float:
    """Return requests a second of `500`, `500/s` or `30000/min`. Raises UsageError."""
    match = re.fullmatch(r"([0-9][0-9_,]*(?:\.[0-9]+)?)(?:/([a-z]+))?", text.strip())
    seconds = UNITS.get(match[2] or "s") if match else None
    if match is None or seconds is None:
        raise UsageError(f"--demand {text}: write requests and their time, such as 30000/min.")
    rate = float(match[1].replace(",", "").replace("_", "")) / seconds
    if not 0 < rate <= MOST_PER_SECOND:
        raise UsageError(
            f"--demand {text}: comes to {rate:g} requests a second; allowed is more than 0, at "
            f"most {MOST_PER_SECOND:,.0f}."
        )
    return rate


@dataclass(frozen=True, kw_only=True)
class Sizing:
    """Instances for a demand; the prices None: not known."""

    demand: float
    """Requests a second."""
    capacity: float
    """Requests a second that one instance answers within the SLO."""
    instances: int
    """With one lost, the rest still hold the demand."""
    least_instances: int
    """Without a spare."""
    target_per_minute: float
    """Of InvocationsPerInstance: at which a further instance is started."""
    usd_an_hour: float | None
    usd_a_million: float | None

    @property
    def spare_share(self) -> float:
        """Return what is left over with one instance lost, as a share of the demand."""
        return self.least_instances * self.capacity / self.demand - 1

    @property
    def scaled_instances(self) -> int:
        """Return on how many instances the demand runs where target tracking scales them."""
        return max(1, math.ceil(self.demand * 60 / max(1.0, self.target_per_minute) - 1e-9))

    @property
    def usd_a_month(self) -> float | None:
        """Return what the instances cost in a month of AWS's own calculators."""
        return None if self.usd_an_hour is None else self.usd_an_hour * HOURS_A_MONTH


def size(demand: float, capacity: float, *, price: float | None, safety_factor: float) -> Sizing:
    """Return the instances of a demand.

    `capacity`: requests a second of one instance within the SLO, above 0; `price`: USD an hour of
    one; `safety_factor`: of the model file's scaling, the share of a capacity at which a further
    instance is asked for.
    """
    least = max(1, math.ceil(demand / capacity - 1e-9))
    instances = least + 1
    hourly = None if price is None else instances * price
    return Sizing(
        demand=demand,
        capacity=capacity,
        instances=instances,
        least_instances=least,
        target_per_minute=math.floor(capacity * 60 * safety_factor),
        usd_an_hour=hourly,
        usd_a_million=None if hourly is None else hourly / (demand * SECONDS_AN_HOUR) * MILLION,
    )
