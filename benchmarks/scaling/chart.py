"""A scaling benchmark as one SVG: load, invocations of each instance, and instances."""

from __future__ import annotations

from markupsafe import Markup

from benchmarks.scaling.record import ScalingRun
from engine_build.card.charts import Axis, Frame, Line, Mark, axis, element, plot, scale

WIDTH, PANEL, GAP = 900.0, 150.0, 46.0
LEFT, RIGHT, TOP, FOOT = 64.0, 884.0, 40.0, 40.0
STYLE = """
text { font: 12px system-ui, sans-serif; fill: #586173; }
.title { font-weight: 600; fill: #171b24; }
.grid { stroke: #dfe3e9; } .grid.across { stroke: none; }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; } .blue { stroke: #0b63b8; }
.green { stroke: #11713f; } .grey { stroke: #8a97a8; stroke-dasharray: 4 3; }
line.target { stroke: #b4530a; stroke-dasharray: 6 4; stroke-width: 1.5; }
text.target { fill: #b4530a; }
line.border { stroke: #a9b4c2; stroke-dasharray: 1 3; }
line.low { stroke: #8a97a8; stroke-dasharray: 2 4; }
"""
Panel = tuple[str, tuple[Line, ...], tuple[Mark, ...]]
"""A title, lines and levels."""


def drawing(scaling_run: ScalingRun, caption: str) -> str:
    """Return the whole file, with a caption below the panels."""
    panels = _panels(scaling_run)
    height = TOP + len(panels) * (PANEL + GAP) - GAP + FOOT + 18
    across = scale(0.0, float(scaling_run.seconds[-1].at + 1), LEFT, RIGHT, ticks=10)
    bottom = height - FOOT - 18
    return element(
        "svg",
        element("style", Markup(STYLE)),
        element("rect", x=0, y=0, width=WIDTH, height=height, fill="#ffffff"),
        *(_panel(panel, axis(across), index, scaling_run) for index, panel in enumerate(panels)),
        element("text", "seconds", x=RIGHT, y=bottom + 32, text_anchor="end"),
        element("text", caption, x=LEFT, y=height - 8),
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {WIDTH:.0f} {height:.0f}",
        role="img",
    )


def _panels(scaling_run: ScalingRun) -> tuple[Panel, ...]:
    seconds = scaling_run.seconds
    shares = [
        (second.at + 0.5, second.per_instance)
        for second in seconds
        if second.per_instance is not None
    ]
    offered = [(float(second.at), second.offered) for second in seconds]
    answered = [(second.at + 0.5, float(second.answered)) for second in seconds]
    desired = [(float(second.at), float(second.desired)) for second in seconds]
    current = [(float(second.at), float(second.current)) for second in seconds]
    return (
        (
            "requests a second: offered (dashed), answered",
            (
                Line(name="offered", points=offered, kind="grey", steps=True),
                Line(name="answered", points=answered, kind="blue"),
            ),
            (),
        ),
        (
            "invocations of each instance a minute",
            (Line(name="invocations", points=shares, kind="blue"),),
            (
                Mark(
                    value=scaling_run.target,
                    label=f"target {scaling_run.target:,.0f}",
                    kind="target",
                ),
                Mark(
                    value=scaling_run.target * 0.9,
                    label="90 %: may scale in below",
                    kind="low",
                    below=True,
                ),
            ),
        ),
        (
            "instances: desired (dashed), answering",
            (
                Line(name="desired", points=desired, kind="grey", steps=True),
                Line(name="answering", points=current, kind="green", steps=True),
            ),
            (),
        ),
    )


def _panel(panel: Panel, across: Axis, index: int, scaling_run: ScalingRun) -> Markup:
    title, lines, levels = panel
    top = TOP + index * (PANEL + GAP)
    values = [value for line in lines for _, value in line.points] + [m.value for m in levels]
    up = axis(scale(0.0, max(values), top + PANEL, top, ticks=3), label="{:,g}".format)
    borders = [
        Mark(value=scaling_run.begin(phase), label="", kind="border", upright=True)
        for phase in range(1, len(scaling_run.phases))
    ]
    frame = Frame(width=WIDTH, height=PANEL, left=LEFT, right=RIGHT, top=top, bottom=top + PANEL)
    drawn = plot(lines, frame, across, up, [*borders, *levels])
    return element("text", title, x=LEFT, y=top - 10, class_="title") + Markup("").join(drawn)
