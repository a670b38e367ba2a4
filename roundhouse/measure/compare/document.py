"""A comparison as rows of a table, as Markdown and as plain JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from engine_build.card.render import milliseconds, per_second
from roundhouse import money
from roundhouse.measure.compare.cells import Candidate
from roundhouse.measure.compare.result import Row, State
from roundhouse.measure.compare.run import Control
from roundhouse.money import BreakEven
from roundhouse.money import usd as format_usd
from roundhouse.report import markdown_rows

NOTHING = "–"
COLUMNS = (
    "candidate", "holds the SLO", "requests/s", "p50", "p95", "p99", "accuracy", "memory",
    "GPU", "instances", "USD/hour", "USD/million",
)  # fmt: skip
RIGHT = COLUMNS[2:]
MIB = 1 / 1024**2


@dataclass(frozen=True, kw_only=True)
class Report:
    """A comparison whole: its rows as ranked, and what they were measured for."""

    model: str
    environment: str
    candidate: Candidate
    region: str
    slo_ms: float
    demand: float | None
    """Requests a second; None: each row is sized for its own rate."""
    rows: tuple[Row, ...]
    controls: tuple[Control, ...]
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


def break_even_table(report: Report) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return columns and the row of what the first row costs against what is; no row without."""
    return money.COLUMNS, [] if report.break_even is None else [report.break_even.cells()]


def cells_of(row: Row) -> tuple[str, ...]:
    """Return a row's cells, by COLUMNS."""
    cell, knee, sizing = row.cell, row.cell.knee, row.sizing
    held = "yes" if cell.holds else "no" if cell.state is State.measured else cell.state.value
    accuracy = NOTHING if cell.accuracy_mean is None else f"{cell.accuracy_mean:.5f}"
    if cell.within_budget is False:
        accuracy += " (beyond budget)"
    return (
        cell.name,
        held,
        NOTHING if cell.rate is None else per_second(cell.rate),
        *(
            (NOTHING,) * 3
            if knee is None
            else (milliseconds(knee.p50_ms), milliseconds(knee.p95_ms), milliseconds(knee.p99_ms))
        ),
        accuracy,
        _memory(row),
        NOTHING if cell.gpu_percent is None else f"{cell.gpu_percent:.0f} %",
        NOTHING if sizing is None else f"{sizing.instances} x {cell.instance_type}",
        NOTHING if sizing is None else format_usd(sizing.usd_an_hour),
        NOTHING if sizing is None else format_usd(sizing.usd_a_million),
    )


def _memory(row: Row) -> str:
    cell = row.cell
    mib = cell.host_memory_mib if cell.device_memory_mib is None else cell.device_memory_mib
    return NOTHING if mib is None else f"{mib:,.0f} MiB"


def reasons(report: Report) -> list[tuple[str, str]]:
    """Return why a row has no numbers, and of the others what ended the search."""
    return [(row.cell.name, row.cell.reason) for row in report.rows if row.cell.reason]


def markdown(report: Report) -> str:
    """Return the comparison as Markdown, to be pasted into a pull request."""
    columns, rows = table_of(report)
    titles, costs = break_even_table(report)
    lines = [
        f"# {report.model} in {report.environment}",
        "",
        report.headline,
        *(["", sizing] if (sizing := sizing_sentence(report)) else []),
        *(["", *markdown_rows(titles, costs, right=money.RIGHT)] if costs else []),
        "",
        *markdown_rows(columns, rows, right=RIGHT),
        "",
        *(f"- {name}: {reason}" for name, reason in reasons(report)),
        "",
        f"SLO: p99 within {report.slo_ms:g} ms. {control_sentence(report)} Load from: "
        f"{report.machine}, {report.date}. `{report.command}`",
        "",
    ]
    return "\n".join(lines)


def control_sentence(report: Report) -> str:
    """Return how far two measurements of one cell lay apart."""
    results: list[str] = []
    for control in report.controls:
        if control.first and control.second:
            ratio = f"{control.second / control.first:.2f} of its rate"
            results.append(f"{control.name} measured again: {ratio}.")
        elif control.first:
            results.append(f"{control.name} measured again: held no rate.")
    return " ".join(results) or "No cell was measured twice in this run."


def table_of(report: Report) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the columns and cells of the report's table, without columns that hold nothing."""
    rows = [cells_of(row) for row in report.rows]
    kept = [place for place in range(len(COLUMNS)) if any(row[place] != NOTHING for row in rows)]
    columns = tuple(COLUMNS[place] for place in kept)
    return columns, [tuple(row[place] for place in kept) for row in rows]


def document(report: Report) -> dict[str, Any]:
    """Return the comparison for JSON."""
    return {
        "version": 2,
        "model": report.model,
        "environment": report.environment,
        "region": report.region,
        "slo_ms": report.slo_ms,
        "demand_per_second": report.demand,
        "headline": report.headline,
        "rows": [_row(row) for row in report.rows],
        "controls": [asdict(control) for control in report.controls],
        "machine": report.machine,
        "date": report.date,
        "prices_date": report.prices_date,
        "break_even": None if report.break_even is None else report.break_even.as_dict(),
        "command": report.command,
    }


def _row(row: Row) -> dict[str, Any]:
    sizing = row.sizing
    sized = (
        None
        if sizing is None
        else {
            **asdict(sizing),
            "usd_a_month": sizing.usd_a_month,
            "scaled_instances": sizing.scaled_instances,
        }
    )
    return {
        **asdict(row.cell),
        "values": dict(row.cell.values),
        "holds_slo": row.cell.holds,
        "sizing": sized,
    }
