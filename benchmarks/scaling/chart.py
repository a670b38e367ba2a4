"""A scaling benchmark as one SVG: load, invocations of each instance, and instances."""

from __future__ import annotations

from markupsafe import Markup

from benchmarks.scaling.record import ScalingRun
from roundhouse.reports.charts import Axis, Frame, Line, Mark, axis, element, plot, scale

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


def chart(run: ScalingRun, caption: str) -> str:
    """Return the SVG file, with a caption below the panels."""
    panels = _panels(run)
    height = TOP + len(panels) * (PANEL + GAP) - GAP + FOOT + 18
    across = scale(0.0, float(run.seconds[-1].at + 1), LEFT, RIGHT, ticks=10)
    bottom = height - FOOT - 18
    return element(
        "svg",
        element("style", Markup(STYLE)),
        element("rect", x=0, y=0, width=WIDTH, height=height, fill="#ffffff"),
        *(_panel(panel, axis(across), index, run) for index, panel in enumerate(panels)),
        element("text", "seconds", x=RIGHT, y=bottom + 32, text_anchor="end"),
        element("text", caption, x=LEFT, y=height - 8),
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {WIDTH:.0f} {height:.0f}",
        role="img",
    )


def _panels(run: ScalingRun) -> tuple[Panel, ...]:
    seconds = run.seconds
    shares = [(s.at + 0.5, s.per_instance) for s in seconds if s.per_instance is not None]
    offered = [(float(s.at), s.offered) for s in seconds]
    answered = [(s.at + 0.5, float(s.answered)) for s in seconds]
    desired = [(float(s.at), float(s.desired)) for s in seconds]
    current = [(float(s.at), float(s.current)) for s in seconds]
    load = (
        Line(name="offered", points=offered, kind="grey", steps=True),
        Line(name="answered", points=answered, kind="blue"),
    )
    instances = (
        Line(name="desired", points=desired, kind="grey", steps=True),
        Line(name="answering", points=current, kind="green", steps=True),
    )
    target = Mark(value=run.target, label=f"target {run.target:,.0f}", kind="target")
    low = Mark(value=run.target * 0.9, label="90 %: may scale in below", kind="low", below=True)
    invocations = Line(name="invocations", points=shares, kind="blue")
    return (
        ("requests a second: offered (dashed), answered", load, ()),
        ("invocations of each instance a minute", (invocations,), (target, low)),
        ("instances: desired (dashed), answering", instances, ()),
    )


def _panel(panel: Panel, across: Axis, index: int, run: ScalingRun) -> Markup:
    title, lines, levels = panel
    top = TOP + index * (PANEL + GAP)
    values = [value for line in lines for _, value in line.points]
    values += [level.value for level in levels]
    up = axis(scale(0.0, max(values), top + PANEL, top, ticks=3), label="{:,g}".format)
    borders = [
        Mark(value=run.begin(phase), label="", kind="border", upright=True)
        for phase in range(1, len(run.phases))
    ]
    frame = Frame(width=WIDTH, height=PANEL, left=LEFT, right=RIGHT, top=top, bottom=top + PANEL)
    content = plot(lines, frame, across, up, [*borders, *levels])
    return element("text", title, x=LEFT, y=top - 10, class_="title") + Markup("").join(content)
