"""Results of a comparison's cells, their instances for a demand, and their ranking."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from onboarding.lock import LockEntry
from onboarding.prices import HOURS_A_MONTH
from roundhouse.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Knee:
    """The highest rate tried that an open loop held within the SLO; `rate` None: none did."""

    rate: float | None
    reason: str
    """Why no higher rate counts."""
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    """At the rate; where none held, of one user alone. None: too few answers for it."""


class State(StrEnum):
    """How far a cell came."""

    measured = "measured"
    refused = "refused by check"
    not_built = "not built"
    not_deployed = "not deployed"
    failed = "failed under load"


@dataclass(frozen=True, kw_only=True)
class CellResult:
    """One row: a candidate with what was measured, or the reason why nothing was."""

    name: str
    values: tuple[tuple[str, str], ...]
    model: str
    instance_type: str
    state: State
    reason: str = ""
    engine_key: str | None = None
    runtime: str | None = None
    precision: str | None = None
    accuracy_mean: float | None = None
    within_budget: bool | None = None
    device_memory_mib: float | None = None
    host_memory_mib: float | None = None
    knee: Knee | None = None
    date: str | None = None
    sizing: Sizing | None = None

    @property
    def rate(self) -> float | None:
        """Requests a second that one instance answered within the SLO."""
        return None if self.knee is None else self.knee.rate

    @property
    def holds(self) -> bool:
        """Return whether some rate was held within the SLO."""
        return self.rate is not None

    def sized(self, demand: float | None, price: float | None, safety: float) -> CellResult:
        """Return the row with the instances of a demand; without one, of what one answers."""
        if self.rate is None:
            return self
        wanted = self.rate if demand is None else demand
        return replace(self, sizing=size(wanted, self.rate, price=price, safety_factor=safety))


def ranked(rows: Iterable[CellResult]) -> tuple[CellResult, ...]:
    """Return rows that hold the SLO first, the cheapest of them before the others.

    At one price the higher rate comes first; a price that is not known comes after those that are.
    """

    def order(row: CellResult) -> tuple[Any, ...]:
        usd = None if row.sizing is None else row.sizing.usd_an_hour
        count = 0 if row.sizing is None else row.sizing.instances
        is_measured = row.state is State.measured
        known = (usd is None, usd or 0.0, count, -(row.rate or 0.0))
        return not row.holds, not is_measured, *known, row.name

    return tuple(sorted(rows, key=order))


def with_engine(result: CellResult, entry: LockEntry) -> CellResult:
    """Return a result with what the lock knows of its engine."""
    manifest = entry.manifest
    # The last is that of the engine which was published.
    accuracy = manifest.accuracy_records[-1] if manifest.accuracy_records else None
    return replace(
        result,
        engine_key=manifest.engine_key,
        runtime=manifest.runtime.name,
        precision=manifest.precision,
        accuracy_mean=None if accuracy is None else accuracy.mean,
        within_budget=None if accuracy is None else accuracy.verdict == "pass",
        device_memory_mib=manifest.device_memory_mib,
        host_memory_mib=manifest.host_memory_mib,
    )


UNITS = {
    "s": 1.0, "sec": 1.0, "second": 1.0, "min": 60.0, "minute": 60.0, "h": 3600.0, "hour": 3600.0,
}  # fmt: skip
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
