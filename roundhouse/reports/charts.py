"""The report's charts as SVG: lines over an axis that is straight or logarithmic."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engine_build.card.markup import Markup, element, joined, number
from engine_build.card.scale import Scale, scale

WIDTH, HEIGHT = 460.0, 250.0
LEFT, RIGHT, TOP, BOTTOM = 52.0, 446.0, 24.0, 208.0
TICKS = (1.0, 2.0, 5.0)
Place = Callable[[float], float]
Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line: its points, and the style it is drawn in (see style.py)."""

    name: str
    points: Points
    kind: str
    dots: bool = False
    longest_gap: float | None = None
    """Points that lie farther apart are not joined: nothing was known between them."""


@dataclass(frozen=True, kw_only=True)
class Axis:
    """Where values lie, and the labelled ticks."""

    place: Place
    ticks: tuple[tuple[float, str], ...]
    title: str


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A line across the chart with a word: level at a value, or upright where `upright`."""

    value: float
    word: str
    kind: str
    upright: bool = False


def straight(
    values: Sequence[float], title: str, *, upward: bool, low: float | None = None, ticks: int = 5
) -> Axis:
    """An axis over the values, its ends on round numbers."""
    start, end = (BOTTOM, TOP) if upward else (LEFT, RIGHT)
    found: Scale = scale(
        min(values) if low is None else low,
        max(*values, 1e-3) if len(values) > 1 else values[0],
        start,
        end,
        ticks=ticks,
    )
    return Axis(place=found, ticks=tuple((each, f"{each:,g}") for each in found.ticks), title=title)


def logarithmic(values: Sequence[float], title: str) -> Axis:
    """An upward axis of powers of ten with 1, 2 and 5 marked where there is room."""
    low, high = min(values), max(values)
    low = low if low < high else low / 2
    bottom, top = math.log10(low) - 0.04, math.log10(high) + 0.06
    powers = range(math.floor(bottom), math.ceil(top) + 1)
    steps = TICKS if top - bottom < 2.4 else TICKS[:1]
    ticks = [
        step * 10.0**power
        for power in powers
        for step in steps
        if bottom <= math.log10(step * 10.0**power) <= top
    ]
    if len(ticks) < 2:
        ticks = [10**bottom, 10**top]

    def place(value: float) -> float:
        return BOTTOM - (math.log10(max(value, 1e-9)) - bottom) / (top - bottom) * (BOTTOM - TOP)

    return Axis(
        place=place,
        ticks=tuple((each, f"{each:,g}") for each in map(_three_digits, ticks)),
        title=title,
    )


def _three_digits(value: float) -> float:
    return float(f"{value:.3g}")


def percentiles(highest: float) -> Axis:
    """An axis on which every nine more takes the same room."""
    nines = [
        (50.0, "50 %"),
        (90.0, "90 %"),
        (99.0, "99 %"),
        (99.9, "99.9 %"),
        (99.99, "99.99 %"),
        (99.999, "99.999 %"),
    ]
    most = -math.log10(1 - min(highest, 99.9995) / 100)

    def place(value: float) -> float:
        return LEFT + -math.log10(1 - min(value, 99.9995) / 100) / max(most, 0.3) * (RIGHT - LEFT)

    return Axis(
        place=place,
        ticks=tuple((v, t) for v, t in nines if v <= highest + 1e-9),
        title="percentile of requests",
    )


def chart(
    title: str, lines: Sequence[Line], across: Axis, up: Axis, marks: Sequence[Mark] = ()
) -> Markup:
    """Lines over their axes, with a legend in their colours."""
    told = "; ".join(f"{line.name}: {len(line.points)} points" for line in lines)
    return joined(
        element(
            "svg",
            element("title", f"{title}. {told}"),
            [_across(across, value, text) for value, text in across.ticks],
            [_up(up, value, text) for value, text in up.ticks],
            element(
                "text",
                across.title,
                x=(LEFT + RIGHT) / 2,
                y=HEIGHT - 6,
                text_anchor="middle",
                class_="tick",
            ),
            element("text", up.title, x=0, y=TOP - 13, class_="tick"),
            [_mark(each, across, up) for each in marks],
            [_line(line, across, up) for line in lines],
            viewBox=f"0 0 {WIDTH:.0f} {HEIGHT:.0f}",
            role="img",
        ),
        _legend(lines),
    )


def _line(line: Line, across: Axis, up: Axis) -> Markup:
    return joined(_piece(each, line, across, up) for each in _pieces(line))


def _piece(points: Points, line: Line, across: Axis, up: Axis) -> Markup:
    places = [(across.place(x), up.place(y)) for x, y in points]
    path = element(
        "polyline",
        points=" ".join(f"{number(x)},{number(y)}" for x, y in places),
        class_=f"line {line.kind}",
    )
    shown = places if line.dots or len(places) == 1 else []
    return joined(
        path, [element("circle", cx=x, cy=y, r=3, class_=f"dot {line.kind}") for x, y in shown]
    )


def _pieces(line: Line) -> list[Points]:
    pieces: list[list[tuple[float, float]]] = []
    for point in line.points:
        if pieces and (
            line.longest_gap is None or point[0] - pieces[-1][-1][0] <= line.longest_gap
        ):
            pieces[-1].append(point)
        else:
            pieces.append([point])
    return list(pieces)


def _legend(lines: Sequence[Line]) -> Markup:
    return element(
        "p",
        [element("span", line.name, class_=f"key {line.kind}") for line in lines],
        class_="keys",
    )


def _across(axis: Axis, value: float, text: str) -> Markup:
    x = axis.place(value)
    line = element("line", x1=x, x2=x, y1=TOP, y2=BOTTOM, class_="grid")
    return joined(
        line, element("text", text, x=x, y=BOTTOM + 16, text_anchor="middle", class_="tick")
    )


def _up(axis: Axis, value: float, text: str) -> Markup:
    y = axis.place(value)
    line = element("line", x1=LEFT, x2=RIGHT, y1=y, y2=y, class_="grid")
    return joined(
        line, element("text", text, x=LEFT - 7, y=y + 4, text_anchor="end", class_="tick")
    )


def _mark(mark: Mark, across: Axis, up: Axis) -> Markup:
    if mark.upright:
        x = across.place(mark.value)
        anchor, beside = ("end", -5) if x > (LEFT + RIGHT) / 2 else ("start", 5)
        line = element("line", x1=x, x2=x, y1=TOP, y2=BOTTOM, class_=f"mark {mark.kind}")
        return joined(
            line,
            element(
                "text",
                mark.word,
                x=x + beside,
                y=TOP + 11,
                text_anchor=anchor,
                class_=f"word {mark.kind}",
            ),
        )
    y = up.place(mark.value)
    line = element("line", x1=LEFT, x2=RIGHT, y1=y, y2=y, class_=f"mark {mark.kind}")
    return joined(
        line,
        element(
            "text", mark.word, x=RIGHT - 4, y=y - 5, text_anchor="end", class_=f"word {mark.kind}"
        ),
    )
