"""The table that a load test ends with on the console."""

from __future__ import annotations

from rich.markup import escape
from rich.table import Table

from roundhouse.load_test.report.result import LoadResult
from roundhouse.load_test.wording import milliseconds, rate


def load_table(result: LoadResult) -> Table:
    """One row per phase of a load test; the chief one stands out."""
    table = Table()
    for column in ("Phase", "Offered/s", "Answered/s", "p50", "p95", "p99", "Errors", "SLO"):
        table.add_column(column, justify="left" if column in ("Phase", "SLO") else "right")
    for phase in result.phases:
        offered = rate(phase.offered_per_second) if phase.loop == "open" else "–"
        times = (milliseconds(phase.latency_ms[name]) for name in ("p50", "p95", "p99"))
        outcome = "–" if phase.outcome is None else phase.outcome
        cells = (
            escape(phase.name),
            offered,
            rate(phase.answered_per_second),
            *times,
            f"{phase.failed:,}",
            outcome,
        )
        table.add_row(*cells, style="bold" if phase is result.chief else None)
    return table
