"""The report of a comparison as one HTML file that loads nothing, in the engine card's style."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from markupsafe import Markup

from engine_build.card.render import render
from roundhouse import money
from roundhouse.compare.document import (
    RIGHT,
    Report,
    break_even_table,
    control_sentence,
    reasons,
    sizing_sentence,
    table_of,
)

TEMPLATES = Path(__file__).parent / "templates"


def compare_page(report: Report) -> bytes:
    """Return UTF-8 HTML."""
    shown, cells = table_of(report)
    titles, costs = break_even_table(report)

    def rows(badge: Callable[[str], Markup]) -> list[tuple[list[str], bool]]:
        result = []
        for row, (name, held, *more) in zip(report.rows, cells, strict=True):
            verdict = badge({"yes": "held", "no": "missed"}.get(held, held))
            result.append(([name, verdict, *more], row is report.best))
        return result

    values = {
        "report": report,
        "columns": [(column, "number" if column in RIGHT else "") for column in shown],
        "rows": rows,
        "reasons": [([name, reason], False) for name, reason in reasons(report)],
        "control": control_sentence(report),
        "sizing": sizing_sentence(report),
        "cost_columns": [(name, "number" if name in money.RIGHT else "") for name in titles],
        "costs": [(cost, False) for cost in costs],
    }
    return render("compare_report.html.j2", values, folder=TEMPLATES).encode()
