"""A comparison as rows of a table, as Markdown and as plain JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from roundhouse import money
from roundhouse.figures import milliseconds, per_second
from roundhouse.measure.compare.result import Row, State
from roundhouse.money import BreakEven
from roundhouse.money import usd as format_usd
from roundhouse.table import NOTHING, Table, table

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
    rows: tuple[Row, ...]
    machine: str
    date: str
    prices_date: str | None
    command: str
    break_even: BreakEven | None = None
    """The first row against a baseline of the grid, or against what runs."""

    @property
    def best(self) -> Row | None:
        """The first row, where it holds the SLO."""
        return self.rows[0] if self.rows and self.rows[0].cell.holds else None

    @property
    def headline(self) -> str:
        """What a reader takes away; first of all, that nothing holds."""
        slo = f"the SLO of {self.slo_ms:g} ms"
        if self.best is None:
            count = len(self.rows)
            return (
                f"None of {count} candidates holds {slo}: take a larger instance, or a longer SLO."
            )
        row = self.best
        sizing, usd = row.sizing, row.usd_an_hour
        assert sizing is not None
        cost = "a price that is not known" if usd is None else f"{format_usd(usd)} USD an hour"
        held = sum(item.cell.holds for item in self.rows)
        demand = f"{per_second(sizing.demand)} requests/s"
        return (
            f"{row.cell.name}: {demand} within {slo} take {sizing.instances} x "
            f"{row.cell.instance_type} (one may be lost), {cost}. {held} of {len(self.rows)} "
            f"candidates hold it."
        )


def sizing_sentence(report: Report) -> str:
    """Return the first row's instances, price and scaling target; nothing where none holds."""
    row = report.best
    if row is None or row.sizing is None:
        return ""
    sizing = row.sizing
    price = "is not known"
    if sizing.usd_an_hour is not None:
        usd = f"{format_usd(sizing.usd_an_hour / sizing.instances)} USD an hour"
        dated = f" ({report.prices_date})" if report.prices_date else ""
        price = f"is {usd}{dated}"
    return (
        f"Sizing: {sizing.instances} x {row.cell.instance_type}; with one lost, "
        f"{sizing.least_instances} hold {per_second(sizing.demand)} requests/s and "
        f"{sizing.spare_share:.0%} more. The price of one in {report.region} {price}. Scaling "
        f"target: {sizing.target_per_minute:,.0f} InvocationsPerInstance a minute, at which the "
        f"demand runs on {sizing.scaled_instances}."
    )


def break_even_table(report: Report) -> Table | None:
    """Return what the first row costs against what is; None where that is not known."""
    item = report.break_even
    return None if item is None else table(money.COLUMNS, [item.cells()], right=money.RIGHT)


def cells_of(row: Row) -> tuple[str, ...]:
    """Return a row's cells, by COLUMNS."""
    cell, knee, sizing = row.cell, row.cell.knee, row.sizing
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
    return [(row.cell.name, row.cell.reason) for row in report.rows if row.cell.reason]


def markdown(report: Report) -> str:
    """Return the comparison as Markdown, to be pasted into a pull request."""
    costs = break_even_table(report)
    blocks = [
        f"# {report.model} in {report.environment}",
        report.headline,
        sizing_sentence(report),
        "" if costs is None else costs.markdown(),
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
        "version": 4,
        **{name: getattr(report, name) for name in fields},
        "demand_per_second": report.demand,
        "rows": [_row(row) for row in report.rows],
        "break_even": None if report.break_even is None else report.break_even.as_dict(),
    }


def _row(row: Row) -> dict[str, Any]:
    cell, sizing = row.cell, row.sizing
    names = ("usd_a_month", "scaled_instances")
    more = {} if sizing is None else {name: getattr(sizing, name) for name in names}
    return {
        **asdict(cell),
        "values": dict(cell.values),
        "holds_slo": cell.holds,
        "sizing": None if sizing is None else {**asdict(sizing), **more},
    }
