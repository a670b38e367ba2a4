"""A comparison as rows of a table, as Markdown and as plain JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from roundhouse.figures import milliseconds, per_second
from roundhouse.figures import usd as format_usd
from roundhouse.measure.compare.result import CellResult, State
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
    price = "is not known"
    if sizing.usd_an_hour is not None:
        usd = f"{format_usd(sizing.usd_an_hour / sizing.instances)} USD an hour"
        dated = f" ({report.prices_date})" if report.prices_date else ""
        price = f"is {usd}{dated}"
    return (
        f"Sizing: {sizing.instances} x {row.instance_type}; with one lost, "
        f"{sizing.least_instances} hold {per_second(sizing.demand)} requests/s and "
        f"{sizing.spare_share:.0%} more. The price of one in {report.region} {price}. Scaling "
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
