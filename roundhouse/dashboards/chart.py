"""One graph as SVG, as CloudWatch draws it: curves over a day, level lines with their words, a
legend below.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence
from dataclasses import dataclass

from engine_build.card.markup import Markup, element, joined, number
from engine_build.card.scale import Scale, scale
from roundhouse.dashboards.opened import Curve

COLORS = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f")
LEFT, RIGHT, TOP, FOOT = 52.0, 14.0, 10.0, 22.0
HOUR = 3600.0
LETTER, LEGEND_LINE, SWATCH, WORD_HEIGHT = 6.1, 16.0, 16.0, 15.0
FEW_POINTS = 5
LONGEST_GAP = 900.0
"""Seconds without a point, over which no line is drawn."""


@dataclass(frozen=True, kw_only=True)
class Level:
    """A level line; those of one value share their word."""

    value: float
    label: str
    color: str


@dataclass(frozen=True, kw_only=True)
class Frame:
    """The size in pixels, the times, and the unit of the axis; `high` is where the axis ends, None
    where the values do.
    """

    width: float
    height: float
    start: float
    end: float
    unit: str = ""
    high: float | None = None


def chart(frame: Frame, curves: Sequence[Curve], levels: Sequence[Level]) -> Markup:
    """A graph without its title; with no value anywhere it says so."""
    colored = [
        (curve, curve.color or COLORS[place % len(COLORS)]) for place, curve in enumerate(curves)
    ]
    legend, legend_height = _legend(frame, colored)
    bottom = frame.height - legend_height - FOOT
    up = _upward(frame, curves, levels, bottom)
    shown = [each for each in colored if each[0].points]
    return element(
        "svg",
        [_grid(frame, up, value) for value in up.ticks],
        _hours(frame, bottom),
        [_curve(frame, up, curve, color) for curve, color in shown],
        _levels(frame, up, _merged(levels)),
        []
        if shown
        else [
            element(
                "text", "No data available", x=frame.width / 2, y=bottom / 2, text_anchor="middle"
            )
        ],
        element("text", frame.unit, x=0, y=TOP - 1, class_="unit"),
        legend,
        width=frame.width,
        height=frame.height,
        viewBox=f"0 0 {number(frame.width)} {number(frame.height)}",
        role="img",
    )


def _upward(frame: Frame, curves: Sequence[Curve], levels: Sequence[Level], bottom: float) -> Scale:
    values = [value for curve in curves for value in curve.points.values()] + [
        each.value for each in levels
    ]
    high = max(values, default=1.0) if frame.high is None else frame.high
    return scale(0.0, high if high > 0 else 1.0, bottom, TOP + 6, ticks=4)


def _across(frame: Frame, at: float) -> float:
    return LEFT + (at - frame.start) / (frame.end - frame.start) * (frame.width - LEFT - RIGHT)


def _grid(frame: Frame, up: Scale, value: float) -> Markup:
    line = element(
        "line", x1=LEFT, x2=frame.width - RIGHT, y1=up(value), y2=up(value), class_="grid"
    )
    return joined(
        line, element("text", told(value), x=LEFT - 6, y=up(value) + 4, text_anchor="end")
    )


def told(value: float) -> str:
    """A tick's word: thousands as k, millions as M, as CloudWatch writes them."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def _hours(frame: Frame, bottom: float) -> list[Markup]:
    step = HOUR * (3 if frame.width > 620 else 6)
    first = math.ceil(frame.start / step)
    found = []
    for count in range(first, math.floor(frame.end / step) + 1):
        at = count * step
        word = datetime.datetime.fromtimestamp(at, datetime.UTC).strftime("%H:%M")
        found.append(
            element("text", word, x=_across(frame, at), y=bottom + 15, text_anchor="middle")
        )
    return found


def _curve(frame: Frame, up: Scale, curve: Curve, color: str) -> Markup:
    pieces: list[list[tuple[float, float]]] = []
    for at in sorted(curve.points):
        if not pieces or at - pieces[-1][-1][0] > LONGEST_GAP:
            pieces.append([])
        pieces[-1].append((at, curve.points[at]))
    return joined(_piece(frame, up, piece, color) for piece in pieces)


def _piece(frame: Frame, up: Scale, piece: Sequence[tuple[float, float]], color: str) -> Markup:
    if len(piece) <= FEW_POINTS:
        return joined(
            element("circle", cx=_across(frame, at), cy=up(value), r=2.2, fill=color)
            for at, value in piece
        )
    points = " ".join(f"{number(_across(frame, at))},{number(up(value))}" for at, value in piece)
    return element("polyline", points=points, class_="curve", stroke=color)


def _merged(levels: Sequence[Level]) -> list[Level]:
    """Lines of one value as one line, their words one after the other."""
    found: dict[float, Level] = {}
    for each in levels:
        before = found.get(each.value)
        label = each.label if before is None else f"{before.label}, {each.label}"
        found[each.value] = Level(
            value=each.value, label=label, color=each.color if before is None else before.color
        )
    return list(found.values())


def _levels(frame: Frame, up: Scale, levels: Sequence[Level]) -> list[Markup]:
    """From the top: a word stands above its line, or below where another line is near above it."""
    found, last = [], -math.inf
    for level in sorted(levels, key=lambda each: -each.value):
        y = up(level.value)
        near_top = y - TOP < WORD_HEIGHT
        found.append(_level(frame, y, level, below=near_top or y - last < WORD_HEIGHT))
        last = y
    return found


def _level(frame: Frame, y: float, level: Level, *, below: bool) -> Markup:
    line = element(
        "line", x1=LEFT, x2=frame.width - RIGHT, y1=y, y2=y, class_="level", stroke=level.color
    )
    label = _cut(level.label, frame.width - LEFT - RIGHT)
    style = f"fill:{level.color}"
    return joined(
        line,
        element(
            "text", label, x=LEFT + 4, y=y + 12 if below else y - 4, class_="word", style=style
        ),
    )


def _legend(frame: Frame, curves: Sequence[tuple[Curve, str]]) -> tuple[Markup, float]:
    """Words in rows as wide as the graph, and how high they are together."""
    places: list[tuple[float, int, str, str]] = []
    x, row = 4.0, 0
    for curve, color in curves:
        width = SWATCH + LETTER * len(curve.label) + 12
        if places and x + width > frame.width:
            x, row = 4.0, row + 1
        places.append((x, row, curve.label, color))
        x += width
    height = LEGEND_LINE * (row + 1) + 4
    top = frame.height - height + 12
    return joined(_entry(frame, top, *place) for place in places), height


def _entry(frame: Frame, top: float, x: float, row: int, label: str, color: str) -> Markup:
    y = top + row * LEGEND_LINE
    swatch = element("rect", x=x, y=y - 8, width=10, height=10, fill=color, rx=2)
    return joined(
        swatch, element("text", _cut(label, frame.width - x - SWATCH), x=x + SWATCH, y=y + 1)
    )


def _cut(label: str, width: float) -> str:
    most = int(width / LETTER)
    return label if len(label) <= most else label[: most - 1] + "…"
