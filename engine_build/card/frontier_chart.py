"""A chart of one accuracy against the share of INT8 multiply-accumulates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine_build.card.markup import Markup, element, joined, number
from engine_build.card.scale import Scale, scale

WIDTH, HEIGHT = 360.0, 236.0
LEFT, RIGHT, TOP, BOTTOM = 44.0, 352.0, 14.0, 192.0


@dataclass(frozen=True, kw_only=True)
class FrontierPoint:
    """One measured network."""

    share: float
    value: float
    chosen: bool


def frontier_chart(title: str, points: Sequence[FrontierPoint], *, budget: float | None) -> Markup:
    """Points joined in order of their share; the chosen one stands out, the budget is a line."""
    across = _shares(points)
    values = [point.value for point in points] + ([] if budget is None else [budget])
    up = scale(min(values), max(values), BOTTOM, TOP, ticks=4, most=1.0)
    line = " ".join(f"{number(across(point.share))},{number(up(point.value))}" for point in points)
    return element(
        "svg",
        element(
            "title",
            f"{title}: "
            + "; ".join(f"{point.share:.1%} INT8: {point.value:.5f}" for point in points),
        ),
        [_across_tick(across, value) for value in across.ticks],
        [_up_tick(up, value) for value in up.ticks],
        element(
            "text",
            "share of multiply-accumulates in INT8",
            x=(LEFT + RIGHT) / 2,
            y=HEIGHT - 5,
            text_anchor="middle",
            class_="tick",
        ),
        [] if budget is None else [_budget(up(budget))],
        [_drop(across(point.share), up(point.value)) for point in points if point.chosen],
        element("polyline", points=line, class_="path"),
        [
            _dot(across(point.share), up(point.value), point)
            for point in sorted(points, key=lambda point: point.chosen)
        ],
        viewBox=f"0 0 {WIDTH:.0f} {HEIGHT:.0f}",
        role="img",
    )


def _shares(points: Sequence[FrontierPoint]) -> Scale:
    """From the smallest measured share to all."""
    return scale(min(point.share for point in points), 1.0, LEFT, RIGHT, ticks=4, most=1.0)


def _across_tick(across: Scale, value: float) -> Markup:
    x = across(value)
    line = element("line", x1=x, x2=x, y1=TOP, y2=BOTTOM, class_="grid")
    return joined(
        line,
        element("text", f"{value:.0%}", x=x, y=BOTTOM + 16, text_anchor="middle", class_="tick"),
    )


def _up_tick(up: Scale, value: float) -> Markup:
    y = up(value)
    line = element("line", x1=LEFT, x2=RIGHT, y1=y, y2=y, class_="grid")
    return joined(
        line, element("text", up.told(value), x=LEFT - 7, y=y + 4, text_anchor="end", class_="tick")
    )


def _budget(y: float) -> Markup:
    """A line; its word stands above it in the lower half, where the ticks are below."""
    line = element("line", x1=LEFT, x2=RIGHT, y1=y, y2=y, class_="budget")
    beside = -6 if y > (TOP + BOTTOM) / 2 else 14
    return joined(line, element("text", "budget", x=LEFT + 5, y=y + beside, class_="tick warm"))


def _drop(x: float, y: float) -> Markup:
    """From the chosen point to its share."""
    return element("line", x1=x, x2=x, y1=y, y2=BOTTOM, class_="drop")


def _dot(x: float, y: float, point: FrontierPoint) -> Markup:
    return element(
        "circle",
        cx=x,
        cy=y,
        r=6.5 if point.chosen else 4,
        class_="dot own" if point.chosen else "dot",
    )
