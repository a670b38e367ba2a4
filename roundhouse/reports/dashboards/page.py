"""A dashboard as one HTML page on CloudWatch's grid of 24 columns."""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt
from markupsafe import Markup

from engine_build.card.render import render
from local_cloud.cloudwatch.evaluation import EXTRA_DATAPOINTS, OK, Rule, verdict
from roundhouse.reports.charts import (
    Axis,
    Frame,
    Line,
    Mark,
    axis,
    element,
    legend,
    legend_height,
    number,
    plot,
    scale,
)
from roundhouse.reports.dashboards.body import (
    Body,
    Curve,
    alarm_query,
    alarm_series,
    curves,
    stacked,
)
from roundhouse.reports.dashboards.synthetic import SyntheticMetrics
from stacks.dashboards.widget import COLUMNS

TEMPLATES = Path(__file__).parent.parent / "templates"
COLUMN, ROW, GAP, MARGIN, BAR = 64.0, 42.0, 8.0, 12.0, 64.0
TITLE_HEIGHT, PADDING = 24.0, 10.0
LEFT, RIGHT, TOP, FOOT = 52.0, 14.0, 20.0, 22.0
THRESHOLD = "#d62728"
COLORS = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f")
STATES = ("ALARM", "INSUFFICIENT_DATA", "OK")
HOUR = 3600.0
FEW_POINTS = 5
LONGEST_GAP = 900.0
"""Seconds without a point, over which no line is drawn."""
MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("table")


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What a page is drawn from: metrics up to `end`, alarms by ARN, and the notes in its bar."""

    metrics: SyntheticMetrics
    end: float
    alarms: Mapping[str, Mapping[str, Any]]
    title: str
    selected: str | None
    notes: Sequence[str]


def page(body: Body, shown: Shown) -> str:
    """Return an HTML document; `size` has its width and height."""
    widgets = [_widget(widget, shown) for widget in body["widgets"]]
    values = {"shown": shown, "size": size(body), "widgets": widgets}
    return render("dashboard.html.j2", values, folder=TEMPLATES)


def size(body: Body) -> tuple[int, int]:
    """Return width and height of a page in pixels."""
    rows = max((widget["y"] + widget["height"] for widget in body["widgets"]), default=0)
    return round(COLUMNS * COLUMN + 2 * MARGIN), round(rows * ROW + 2 * MARGIN + BAR)


def _widget(widget: Mapping[str, Any], shown: Shown) -> dict[str, Any]:
    left, top = MARGIN + widget["x"] * COLUMN, BAR + MARGIN + widget["y"] * ROW
    width, height = widget["width"] * COLUMN - GAP, widget["height"] * ROW - GAP
    properties, kind = widget["properties"], widget["type"]
    values: dict[str, Any] = {
        "style": f"left:{left:g}px;top:{top:g}px;width:{width:g}px;height:{height:g}px",
        "plain": kind == "text" and widget["height"] == 1,
        "title": properties.get("title", ""),
        "content": "",
        "alarms": None,
    }
    if kind == "text":
        # Escaped by the parser, which takes no HTML.
        return values | {"content": Markup(MARKDOWN.render(properties["markdown"]))}
    if kind == "alarm":
        return values | _alarm_list(properties, shown)
    inner = (width - 2 * PADDING, height - TITLE_HEIGHT - PADDING - 4)
    return values | {"content": _graph(properties, shown, inner)}


def _alarm_list(properties: Mapping[str, Any], shown: Shown) -> dict[str, Any]:
    """Return an alarm widget: those in the states that it asks for, the worst first."""
    arns = properties["alarms"]
    states = [(arn, alarm_state(shown.alarms[arn], shown.metrics, shown.end)) for arn in arns]
    wanted = properties.get("states") or STATES
    chosen = [(arn.rsplit(":", 1)[-1], state) for arn, state in states if state in wanted]
    return {
        "title": f"{properties['title']} ({len(chosen)} of {len(states)})",
        "alarms": sorted(chosen, key=lambda pair: STATES.index(pair[1])),
    }


def alarm_state(alarm: Mapping[str, Any], metrics: SyntheticMetrics, end: float) -> str:
    """Return OK, ALARM or INSUFFICIENT_DATA by the local cloud's rules, for one that was OK."""
    queries, _ = alarm_query(alarm)
    stats = (query["MetricStat"] for query in queries if "MetricStat" in query)
    period = max(float(stat["Period"]) for stat in stats)
    series = alarm_series(alarm, metrics, end)
    count = int(alarm["EvaluationPeriods"]) + EXTRA_DATAPOINTS
    datapoints = [series.get((end // period - back) * period) for back in range(count, 0, -1)]
    rule = Rule(
        comparison=alarm["ComparisonOperator"],
        threshold=float(alarm["Threshold"]),
        evaluation_periods=int(alarm["EvaluationPeriods"]),
        datapoints_to_alarm=int(alarm["DatapointsToAlarm"]),
        missing=alarm["TreatMissingData"],
    )
    return verdict(rule, datapoints, OK).state


def _graph(properties: Mapping[str, Any], shown: Shown, size: tuple[float, float]) -> Markup:
    annotations = properties.get("annotations", {})
    if annotations.get("alarms"):
        drawn, marks = _alarm_graph(shown.alarms[annotations["alarms"][0]], shown)
    else:
        drawn = curves(properties, shown.metrics, shown.end)
        marks = [
            Mark(value=level["value"], label=level["label"], color=level["color"])
            for level in annotations.get("horizontal", ())
        ]
    left_axis = properties.get("yAxis", {}).get("left", {})
    return graph(
        stacked(drawn) if properties.get("stacked") else drawn,
        marks,
        size,
        (shown.metrics.start, shown.end),
        unit=str(left_axis.get("label", "")),
        high=left_axis.get("max"),
    )


def _alarm_graph(alarm: Mapping[str, Any], shown: Shown) -> tuple[list[Curve], list[Mark]]:
    """Return what an alarm watches, and its threshold, as CloudWatch draws it."""
    labels = [query["Label"] for query in alarm.get("Metrics", ()) if "Label" in query]
    if not labels:
        statistic = alarm.get("ExtendedStatistic", alarm.get("Statistic"))
        labels = [f"{alarm['MetricName']} {statistic}"]
    condition = (
        f"{alarm['AlarmName']}: {alarm['Threshold']:g}, "
        f"{alarm['DatapointsToAlarm']} of {alarm['EvaluationPeriods']}"
    )
    mark = Mark(value=float(alarm["Threshold"]), label=condition, color=THRESHOLD)
    points = alarm_series(alarm, shown.metrics, shown.end)
    return [Curve(label=labels[0], points=points)], [mark]


def graph(
    drawn: Sequence[Curve],
    marks: Sequence[Mark],
    size: tuple[float, float],
    times: tuple[float, float],
    unit: str = "",
    high: float | None = None,
) -> Markup:
    """Return a graph without its title; `high` is the axis's end, None where the values end."""
    width, height = size
    lines = [
        Line(
            name=curve.label,
            points=sorted(curve.points.items()),
            color=curve.color or COLORS[index % len(COLORS)],
            longest_gap=LONGEST_GAP,
            few_points=FEW_POINTS,
        )
        for index, curve in enumerate(drawn)
    ]
    legend_top = height - legend_height([line.name for line in lines], width)
    frame = Frame(
        width=width,
        height=height,
        left=LEFT,
        right=width - RIGHT,
        top=TOP,
        bottom=legend_top - FOOT,
    )
    known = [line for line in lines if line.points]
    values = [value for line in known for _, value in line.points] + [m.value for m in marks]
    highest = max(values, default=1.0) if high is None else high
    up = axis(
        scale(0.0, highest if highest > 0 else 1.0, frame.bottom, TOP - 4), unit, short_number
    )
    parts = plot(known, frame, _hours(frame, times), up, _merge_marks(marks))
    if not known:
        x, y = width / 2, frame.bottom / 2
        parts.append(element("text", "No data available", x=x, y=y, text_anchor="middle"))
    return element(
        "svg",
        parts,
        legend(lines, width, legend_top + 12),
        width=width,
        height=height,
        viewBox=f"0 0 {number(width)} {number(height)}",
        role="img",
    )


def short_number(value: float) -> str:
    """Format a tick as CloudWatch does: thousands as k, millions as M."""
    for unit, letter in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= unit:
            return f"{value / unit:g}{letter}"
    return f"{value:g}"


def _hours(frame: Frame, times: tuple[float, float]) -> Axis:
    start, end = times
    step = HOUR * (3 if frame.width > 620 else 6)
    moments = [n * step for n in range(math.ceil(start / step), math.floor(end / step) + 1)]
    labels = [datetime.datetime.fromtimestamp(moment, datetime.UTC) for moment in moments]
    width = (frame.right - frame.left) / (end - start)
    return Axis(
        position=lambda moment: frame.left + (moment - start) * width,
        ticks=[(m, label.strftime("%H:%M")) for m, label in zip(moments, labels, strict=True)],
    )


def _merge_marks(marks: Sequence[Mark]) -> list[Mark]:
    """Return lines of one value as one line, their labels one after the other."""
    by_value: dict[float, list[Mark]] = {}
    for mark in marks:
        by_value.setdefault(mark.value, []).append(mark)
    labels = {value: ", ".join(mark.label for mark in group) for value, group in by_value.items()}
    return [
        Mark(value=value, label=labels[value], color=group[0].color, at_left=True)
        for value, group in by_value.items()
    ]
