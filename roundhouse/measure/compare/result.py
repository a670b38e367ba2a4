"""Results of a comparison's cells: instances for a demand, ranking; as table, Markdown and JSON."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from onboarding.lock import LockEntry
from onboarding.prices import HOURS_A_MONTH
from roundhouse.errors import UsageError
from roundhouse.table import NOTHING, Table, table
from roundhouse.text import milliseconds, per_second
from roundhouse.text import usd as format_usd


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


COLUMNS = (
    "candidate", "holds the SLO", "requests/s", "p50", "p95", "p99", "accuracy", "memory",
    "instances", "USD/hour", "USD/million",
)  # fmt: skip
RIGHT = COLUMNS[2:]


@dataclass(frozen=True, kw_only=True)
class Report:
    """A comparison whole: its rows as ranked, and what they were measured for."""

    model: str
    environment: str
    region: str
    slo_ms: float
    demand: float | None
    """Requests a second; None: each row is sized for its own rate."""
    rows: tuple[CellResult, ...]
    machine: str
    date: str
    prices_date: str | None
    command: str

    @property
    def best(self) -> CellResult | None:
        """The first row, where it holds the SLO."""
        return self.rows[0] if self.rows and self.rows[0].holds else None

    @property
    def headline(self) -> str:
        """What a reader takes away; first of all, that nothing holds."""
        slo = f"the SLO of {self.slo_ms:g} ms"
        if self.best is None:
            count = len(self.rows)
            return (
                f"None of {count} candidates holds {slo}: take a larger instance, or a longer SLO."
            )
        row, sizing = self.best, self.best.sizing
        assert sizing is not None
        cost, usd = "a price that is not known", sizing.usd_an_hour
        if usd is not None:
            cost = f"{format_usd(usd)} USD an hour"
        held = sum(item.holds for item in self.rows)
        demand = f"{per_second(sizing.demand)} requests/s"
        return (
            f"{row.name}: {demand} within {slo} take {sizing.instances} x {row.instance_type} "
            f"(one may be lost), {cost}. {held} of {len(self.rows)} candidates hold it."
        )


def sizing_sentence(report: Report) -> str:
    """Return the first row's instances, price and scaling target; nothing where none holds."""
    row = report.best
    if row is None or row.sizing is None:
        return ""
    sizing = row.sizing
    spare = sizing.least_instances * sizing.capacity / sizing.demand - 1
    price = "is not known"
    if sizing.usd_an_hour is not None:
        usd = f"{format_usd(sizing.usd_an_hour / sizing.instances)} USD an hour"
        dated = f" ({report.prices_date})" if report.prices_date else ""
        price = f"is {usd}{dated}"
    return (
        f"Sizing: {sizing.instances} x {row.instance_type}; with one lost, "
        f"{sizing.least_instances} hold {per_second(sizing.demand)} requests/s and "
        f"{spare:.0%} more. The price of one in {report.region} {price}. Scaling "
        f"target: {sizing.target_per_minute:,.0f} InvocationsPerInstance a minute, at which the "
        f"demand runs on {sizing.scaled_instances}."
    )


def cells_of(cell: CellResult) -> tuple[str, ...]:
    """Return a row's cells, by COLUMNS."""
    knee, sizing = cell.knee, cell.sizing
    held = "yes" if cell.holds else "no" if cell.state is State.measured else cell.state.value
    times = (None,) * 3 if knee is None else (knee.p50_ms, knee.p95_ms, knee.p99_ms)
    memory = cell.host_memory_mib if cell.device_memory_mib is None else cell.device_memory_mib
    beyond = " (beyond budget)" if cell.within_budget is False else ""
    return (
        cell.name,
        held,
        per_second(cell.rate),
        *map(milliseconds, times),
        NOTHING if cell.accuracy_mean is None else f"{cell.accuracy_mean:.5f}{beyond}",
        NOTHING if memory is None else f"{memory:,.0f} MiB",
        NOTHING if sizing is None else f"{sizing.instances} x {cell.instance_type}",
        NOTHING if sizing is None else format_usd(sizing.usd_an_hour),
        NOTHING if sizing is None else format_usd(sizing.usd_a_million),
    )


def reasons(report: Report) -> list[tuple[str, str]]:
    """Return why a row has no numbers, and of the others what ended the search."""
    return [(row.name, row.reason) for row in report.rows if row.reason]


def markdown(report: Report) -> str:
    """Return the comparison as Markdown, to be pasted into a pull request."""
    blocks = [
        f"# {report.model} in {report.environment}",
        report.headline,
        sizing_sentence(report),
        table_of(report).markdown(),
        "\n".join(f"- {name}: {reason}" for name, reason in reasons(report)),
        f"SLO: p99 within {report.slo_ms:g} ms. Load from: {report.machine}, {report.date}. "
        f"`{report.command}`",
    ]
    return "\n\n".join(filter(None, blocks)) + "\n"


def table_of(report: Report) -> Table:
    """Return the report's table, without columns that hold nothing; the best row stands out."""
    chief = [] if report.best is None else [0]
    return table(
        COLUMNS, map(cells_of, report.rows), right=RIGHT, chief=chief
    ).without_empty_columns()


def document(report: Report) -> dict[str, Any]:
    """Return the comparison for JSON."""
    fields = (
        "model", "environment", "region", "slo_ms", "headline", "machine", "date", "prices_date",
        "command",
    )  # fmt: skip
    return {
        "version": 5,
        **{name: getattr(report, name) for name in fields},
        "demand_per_second": report.demand,
        "rows": [_row(row) for row in report.rows],
    }


def _row(row: CellResult) -> dict[str, Any]:
    sizing, fields = row.sizing, asdict(row)
    if sizing is not None:
        fields["sizing"] |= {
            "usd_a_month": sizing.usd_a_month,
            "scaled_instances": sizing.scaled_instances,
        }
    return {**fields, "values": dict(row.values), "holds_slo": row.holds}
