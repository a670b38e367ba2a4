"""A chart of one value a row: bars from zero with their tails, or points with their intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engine_build.card.markup import Markup, element, joined
from engine_build.card.scale import Scale

WIDTH, ROW, MIDDLE, AXIS = 360.0, 41.0, 28.0, 20.0
"""`MIDDLE` is where a row's drawing lies below its words."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A named value with what surrounds it; the published engine's is its own."""

    name: str
    value: float
    told: str
    low: float | None = None
    high: float | None = None
    mark: float | None = None
    """Something between value and high, such as the 95th percentile."""
    own: bool = False


def bars(title: str, rows: Sequence[Row], scale: Scale) -> Markup:
    """A bar to each value, and a whisker from it to `high` with a mark on its way."""
    return _chart(title, rows, scale, _bar, None)


def points(title: str, rows: Sequence[Row], scale: Scale, *, budget: float | None) -> Markup:
    """A point at each value on its interval, and a line at the budget."""
    return _chart(title, rows, scale, _point, budget)


def _chart(
    title: str,
    rows: Sequence[Row],
    scale: Scale,
    drawn: Callable[[Row, Scale, float], Markup],
    budget: float | None,
) -> Markup:
    bottom = ROW * len(rows)
    return element(
        "svg",
        element("title", f"{title}: " + "; ".join(f"{row.name} {row.told}" for row in rows)),
        [_track(scale, index * ROW, budget) for index in range(len(rows))],
        [_tick(scale, value, bottom) for value in scale.ticks],
        [
            _labelled(row, index * ROW, drawn(row, scale, index * ROW + MIDDLE))
            for index, row in enumerate(rows)
        ],
        viewBox=f"0 0 {WIDTH:.0f} {bottom + AXIS:.0f}",
        role="img",
    )


def _labelled(row: Row, top: float, drawn: Markup) -> Markup:
    own, y = "mine" if row.own else None, top + 14
    name = element("text", row.name, x=0, y=y, class_=own)
    return joined(
        name, element("text", row.told, x=WIDTH, y=y, text_anchor="end", class_=own), drawn
    )


def _track(scale: Scale, top: float, budget: float | None) -> Markup:
    """The lines behind one row's drawing, which leave its words alone."""
    low, high = top + MIDDLE - 9, top + MIDDLE + 9
    grid = [
        element("line", x1=x, x2=x, y1=low, y2=high, class_="grid") for x in map(scale, scale.ticks)
    ]
    if budget is None:
        return joined(grid)
    x = scale(budget)
    return joined(grid, element("line", x1=x, x2=x, y1=low, y2=high, class_="budget"))


def _tick(scale: Scale, value: float, bottom: float) -> Markup:
    anchor = "start" if value == scale.ticks[0] else "end" if value == scale.ticks[-1] else "middle"
    x = 0 if anchor == "start" else WIDTH if anchor == "end" else scale(value)
    return element("text", scale.told(value), x=x, y=bottom + 13, text_anchor=anchor, class_="tick")


def _bar(row: Row, scale: Scale, y: float) -> Markup:
    start, end = scale(0), scale(row.value)
    bar = element(
        "rect",
        x=start,
        y=y - 6,
        width=max(end - start, 1),
        height=12,
        rx=2.5,
        class_="bar own" if row.own else "bar",
    )
    if row.high is None:
        return bar
    far = scale(row.high)
    tail = element("line", x1=end, x2=far, y1=y, y2=y, class_="whisker")
    marks = [row.high] if row.mark is None else [row.mark, row.high]
    ends = [
        element("line", x1=scale(at), x2=scale(at), y1=y - 4, y2=y + 4, class_="whisker")
        for at in marks
    ]
    return joined(bar, tail, ends)


def _point(row: Row, scale: Scale, y: float) -> Markup:
    kind = "whisker own" if row.own else "whisker"
    axis = element("line", x1=scale.start, x2=scale.end, y1=y, y2=y, class_="grid")
    dot = element(
        "circle", cx=scale(row.value), cy=y, r=5.5, class_="dot own" if row.own else "dot"
    )
    if row.low is None or row.high is None:
        return joined(axis, dot)
    low, high = scale(row.low), scale(row.high)
    ends = [element("line", x1=x, x2=x, y1=y - 5, y2=y + 5, class_=kind) for x in (low, high)]
    return joined(axis, element("line", x1=low, x2=high, y1=y, y2=y, class_=kind), ends, dot)
