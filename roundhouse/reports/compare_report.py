"""The report of a comparison as one HTML file that loads nothing, in the engine card's style."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from markupsafe import Markup

from engine_build.card.render import render
from roundhouse.measure.compare.document import (
    COLUMNS,
    Report,
    break_even_table,
    control_sentence,
    reasons,
    sizing_sentence,
    table_of,
)
from roundhouse.measure.compare.result import pareto, price_and_latency
from roundhouse.reports.charts import Frame, Line, axis, element, plot, scale

TEMPLATES = Path(__file__).parent / "templates"
FRAME = Frame(width=760, height=330, left=58, right=740, top=24, bottom=280)
MOST_NAMES = 16
"""Points that all have their names; of more, those alone that the line joins."""
LETTER_WIDTH, LABEL_HEIGHT, GAP = 6.6, 13.0, 9.0


def compare_page(report: Report) -> bytes:
    """Return UTF-8 HTML."""
    shown, costs = table_of(report), break_even_table(report)

    def rows(badge: Callable[[str], Markup]) -> list[tuple[list[str], bool]]:
        words = {"yes": "held", "no": "missed"}
        return shown.markup(
            lambda head, text: badge(words.get(text, text)) if head == COLUMNS[1] else text
        )

    values = {
        "report": report,
        "columns": shown.heads,
        "rows": rows,
        "chart": pareto_chart(report),
        "reasons": [([name, reason], False) for name, reason in reasons(report)],
        "control": control_sentence(report),
        "sizing": sizing_sentence(report),
        "costs": costs,
    }
    return render("compare_report.html.j2", values, folder=TEMPLATES).encode()


def pareto_chart(report: Report) -> Markup | None:
    """Return price against median latency; None where fewer than two rows have both."""
    known = price_and_latency(report.rows)
    if len(known) < 2:
        return None
    joined = pareto(known)
    lines = [
        *(Line(name=name, points=[point], kind="plain", radius=4) for name, point in known.items()),
        Line(
            name="no other is cheaper and faster",
            points=[known[name] for name in joined],
            kind="high",
            radius=5,
        ),
    ]
    prices, medians = zip(*known.values(), strict=True)
    across = axis(scale(0.0, max(prices), FRAME.left, FRAME.right, ticks=5), "USD an hour")
    up = axis(scale(0.0, max(medians), FRAME.bottom, FRAME.top, ticks=5), "p50, ms")
    named = known if len(known) <= MOST_NAMES else {name: known[name] for name in joined}
    labels = _labels(
        [(name, across.position(usd), up.position(p50)) for name, (usd, p50) in named.items()]
    )
    return element(
        "svg",
        element("title", f"Price against latency of {len(known)} candidates"),
        plot(lines, FRAME, across, up),
        labels,
        viewBox=f"0 0 {FRAME.width:g} {FRAME.height:g}",
        role="img",
    )


def _labels(points: Sequence[tuple[str, float, float]]) -> list[Markup]:
    """Return a name beside each point, one below the other where two would meet."""
    drawn: list[Markup] = []
    taken: list[tuple[float, float, float]] = []
    for name, x, y in sorted(points, key=lambda point: (point[2], point[1])):
        is_left = x > (FRAME.left + FRAME.right) / 2
        width = LETTER_WIDTH * len(name)
        begin = x - GAP - width if is_left else x + GAP
        while any(
            abs(other - y) < LABEL_HEIGHT and first < begin + width and begin < last
            for first, last, other in taken
        ):
            y += 1
        taken.append((begin, begin + width, y))
        anchor = "end" if is_left else None
        place = {"x": x - GAP if is_left else x + GAP, "y": y + 4}
        drawn.append(element("text", name, **place, text_anchor=anchor, class_="word"))
    return drawn
