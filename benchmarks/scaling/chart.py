"""A scaling walk as one SVG: the load, invocations of each instance against the target, and the
count of instances.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.scaling.record import Walk
from engine_build.card.markup import Markup, element, joined, number
from engine_build.card.scale import Scale, scale

WIDTH, PANEL, GAP = 900.0, 150.0, 46.0
LEFT, RIGHT, TOP, FOOT = 64.0, 884.0, 40.0, 40.0
STYLE = """
text { font: 12px system-ui, sans-serif; fill: #586173; } .title { font-weight: 600; fill: #171b24; } .grid { stroke: #dfe3e9; }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; } .blue { stroke: #0b63b8; } .green { stroke: #11713f; }
.grey { stroke: #8a97a8; stroke-dasharray: 4 3; } .target { stroke: #b4530a; stroke-dasharray: 6 4; stroke-width: 1.5; }
.word { fill: #b4530a; } .border { stroke: #a9b4c2; stroke-dasharray: 1 3; } .low { stroke: #8a97a8; stroke-dasharray: 2 4; }
"""
Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A line of a panel; `steps` holds each value until the next."""

    points: Points
    kind: str
    steps: bool = False


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One chart of the three: its title, its curves, and level lines with a word each."""

    title: str
    curves: tuple[Curve, ...]
    levels: tuple[tuple[float, str, str], ...] = ()


def drawing(walk: Walk, told: str) -> str:
    """The whole file; `told` is the sentence below it."""
    panels = _panels(walk)
    across = scale(0.0, float(walk.seconds[-1].at + 1), LEFT, RIGHT, ticks=10)
    height = TOP + len(panels) * (PANEL + GAP) - GAP + FOOT + 18
    body = [
        _panel(panel, across, TOP + place * (PANEL + GAP), walk)
        for place, panel in enumerate(panels)
    ]
    bottom = height - FOOT - 18
    marks = [
        element("text", across.told(at), x=across(at), y=bottom + 16, text_anchor="middle")
        for at in across.ticks
    ]
    return element(
        "svg",
        element("style", Markup(STYLE)),
        element("rect", x=0, y=0, width=WIDTH, height=height, fill="#ffffff"),
        body,
        marks,
        element("text", "seconds", x=RIGHT, y=bottom + 32, text_anchor="end"),
        element("text", told, x=LEFT, y=height - 8),
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {WIDTH:.0f} {height:.0f}",
        role="img",
    )


def _panels(walk: Walk) -> tuple[Panel, ...]:
    offered = [(float(second.at), second.offered) for second in walk.seconds]
    answered = [(second.at + 0.5, float(second.answered)) for second in walk.seconds]
    shares = [
        (second.at + 0.5, second.per_instance)
        for second in walk.seconds
        if second.per_instance is not None
    ]
    current = [(float(second.at), float(second.current)) for second in walk.seconds]
    desired = [(float(second.at), float(second.desired)) for second in walk.seconds]
    levels = (
        (walk.target, f"target {walk.target:,.0f}", "target"),
        (walk.target * 0.9, "90 %: may scale in below", "low"),
    )
    return (
        Panel(
            title="requests a second: offered (dashed), answered",
            curves=(
                Curve(points=offered, kind="grey", steps=True),
                Curve(points=answered, kind="blue"),
            ),
        ),
        Panel(
            title="invocations of each instance a minute",
            curves=(Curve(points=shares, kind="blue"),),
            levels=levels,
        ),
        Panel(
            title="instances: desired (dashed), answering",
            curves=(
                Curve(points=desired, kind="grey", steps=True),
                Curve(points=current, kind="green", steps=True),
            ),
        ),
    )


def _panel(panel: Panel, across: Scale, top: float, walk: Walk) -> Markup:
    values = [value for curve in panel.curves for _, value in curve.points] + [
        value for value, _, _ in panel.levels
    ]
    up = scale(0.0, max(values), top + PANEL, top, ticks=3)
    borders = [walk.begin(place) for place in range(1, len(walk.phases))]
    return joined(
        element("text", panel.title, x=LEFT, y=top - 10, class_="title"),
        [_grid(up, at) for at in up.ticks],
        [
            element("line", x1=across(at), x2=across(at), y1=top, y2=top + PANEL, class_="border")
            for at in borders
        ],
        [_level(up, *level) for level in panel.levels],
        [_curve(curve, across, up) for curve in panel.curves],
    )


def _grid(up: Scale, at: float) -> Markup:
    line = element("line", x1=LEFT, x2=RIGHT, y1=up(at), y2=up(at), class_="grid")
    return joined(line, element("text", f"{at:,g}", x=LEFT - 8, y=up(at) + 4, text_anchor="end"))


def _level(up: Scale, value: float, word: str, kind: str) -> Markup:
    line = element("line", x1=LEFT, x2=RIGHT, y1=up(value), y2=up(value), class_=kind)
    above = up(value) - 4 if kind == "target" else up(value) + 13
    return joined(
        line,
        element(
            "text",
            word,
            x=RIGHT,
            y=above,
            text_anchor="end",
            class_="word" if kind == "target" else None,
        ),
    )


def _curve(curve: Curve, across: Scale, up: Scale) -> Markup:
    places = [(across(x), up(y)) for x, y in curve.points]
    if curve.steps:
        corners = [[(x, before[1]), (x, y)] for before, (x, y) in itertools.pairwise(places)]
        places = [*places[:1], *(corner for pair in corners for corner in pair)]
    return element(
        "polyline",
        points=" ".join(f"{number(x)},{number(y)}" for x, y in places),
        class_=f"line {curve.kind}",
    )
