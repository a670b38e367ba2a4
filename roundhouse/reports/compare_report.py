"""The report of a comparison as one HTML file that loads nothing, in the engine card's style."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from markupsafe import Markup

from engine_build.card.charts import Frame, Line, Mark, axis, line_chart, scale
from engine_build.card.render import render
from roundhouse.compare.document import (
    RIGHT,
    Report,
    control_sentence,
    reasons,
    sizing_sentence,
    table_of,
)
from roundhouse.compare.result import Row, pareto

TEMPLATES = Path(__file__).parent / "templates"
FRAME = Frame(width=760, height=330, left=58, right=740, top=24, bottom=280)


def compare_page(report: Report) -> bytes:
    """Return UTF-8 HTML."""
    shown, cells = table_of(report)
    columns = [(column, "number" if column in RIGHT else "") for column in shown]

    def rows(badge: Callable[[str], Markup]) -> list[tuple[list[str], bool]]:
        result = []
        for row, (name, held, *more) in zip(report.rows, cells, strict=True):
            verdict = badge({"yes": "held", "no": "missed"}.get(held, held))
            result.append(([name, verdict, *more], row is report.best))
        return result

    values = {
        "report": report,
        "columns": columns,
        "rows": rows,
        "chart": pareto_chart(report),
        "reasons": [([name, reason], False) for name, reason in reasons(report)],
        "control": control_sentence(report),
        "sizing": sizing_sentence(report),
    }
    return render("compare_report.html.j2", values, folder=TEMPLATES).encode()


def pareto_chart(report: Report) -> Markup | None:
    """Return price against median latency; None where fewer than two rows have both."""
    points = {
        row.cell.name: (row.usd_an_hour, row.cell.knee.p50_ms)
        for row in report.rows
        if row.usd_an_hour is not None and row.cell.knee is not None
    }
    known = {
        name: (usd, p50)
        for name, (usd, p50) in points.items()
        if usd is not None and p50 is not None
    }
    if len(known) < 2:
        return None
    best = [known[row.cell.name] for row in pareto(report.rows) if row.cell.name in known]
    lines = [
        Line(name=name, points=[point], kind="plain", radius=4, joined=False)
        for name, point in known.items()
    ]
    lines.append(Line(name="no other is cheaper and faster", points=best, kind="high", radius=5))
    dearest = max(usd for usd, _ in known.values())
    slowest = max(p50 for _, p50 in known.values())
    across = axis(scale(0.0, dearest, FRAME.left, FRAME.right, ticks=5), "USD an hour")
    up = axis(scale(0.0, slowest, FRAME.bottom, FRAME.top, ticks=5), "p50, ms")
    names = [
        Mark(value=known[row.cell.name][0], label=row.cell.name, kind="point", upright=True)
        for row in (_first(report),)
        if row is not None and row.cell.name in known
    ]
    return line_chart("Price against latency", lines, FRAME, across, up, names)


def _first(report: Report) -> Row | None:
    return report.best
