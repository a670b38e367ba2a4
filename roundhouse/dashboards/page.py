"""A dashboard as one HTML page on CloudWatch's grid of 24 columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine_build.card.markup import Markup, element, joined
from roundhouse.dashboards.alarm_state import alarm_state
from roundhouse.dashboards.chart import Frame, Level, chart
from roundhouse.dashboards.markdown import rendered
from roundhouse.dashboards.opened import Body, Curve, alarm_series, curves, stacked
from roundhouse.dashboards.synthetic import SyntheticMetrics
from stacks.dashboards.widget import COLUMNS

COLUMN, ROW, GAP, MARGIN, BAR = 64.0, 42.0, 8.0, 12.0, 64.0
TITLE_HEIGHT, PADDING = 24.0, 10.0
THRESHOLD = "#d62728"
STATES = ("ALARM", "INSUFFICIENT_DATA", "OK")
STYLE = """
* { box-sizing: border-box; margin: 0; }
body { background: #f2f3f3; font: 12px "Helvetica Neue", "DejaVu Sans", Arial, sans-serif; color: #16191f; position: relative; }
.bar { position: absolute; left: 12px; right: 12px; top: 10px; height: 46px; display: flex; gap: 14px; align-items: center; }
.bar h1 { font-size: 18px; } .bar .told { color: #545b64; margin-left: auto; text-align: right; line-height: 1.4; }
.select { background: #fff; border: 1px solid #879596; border-radius: 4px; padding: 6px 10px; }
.select b { font-weight: 600; } .select span { color: #545b64; margin-right: 6px; }
.widget { position: absolute; background: #fff; border: 1px solid #d5dbdb; border-radius: 6px; padding: 8px 10px; }
.widget { overflow: hidden; }
.widget.plain { background: none; border: 0; padding: 6px 2px; }
.widget h3 { font-size: 12.5px; font-weight: 700; height: 20px; white-space: nowrap; overflow: hidden; text-overflow: ellipsis; }
.widget h1 { font-size: 17px; margin-bottom: 6px; } .widget h2 { font-size: 15px; }
.widget p { margin: 0 0 7px; line-height: 1.45; }
table { border-collapse: collapse; font-size: 11px; margin-bottom: 8px; }
th, td { text-align: left; border-bottom: 1px solid #eaeded; padding: 4px 9px 4px 0; } th { color: #545b64; }
code { font: 11px "DejaVu Sans Mono", monospace; background: #f2f3f3; padding: 0 3px; border-radius: 3px; }
svg { display: block; } svg text { font-size: 10.5px; fill: #545b64; } svg .word { font-weight: 600; font-size: 10.5px; }
svg .unit { fill: #879596; font-size: 9.5px; }
.grid { stroke: #eaeded; } .curve { fill: none; stroke-width: 1.4; stroke-linejoin: round; }
.level { stroke-width: 1.4; stroke-dasharray: 6 4; }
.alarms { display: flex; flex-wrap: wrap; gap: 6px; }
.alarm { border: 1px solid #d5dbdb; border-left-width: 5px; border-radius: 4px; padding: 5px 9px; font-size: 11px; }
.alarm.ALARM { border-color: #d13212; background: #fdf3f1; } .alarm.OK { border-left-color: #1d8102; }
.alarm.INSUFFICIENT_DATA { border-left-color: #879596; }
.alarm b { display: block; font-weight: 600; } small { color: #687078; }
.ALARM small { color: #d13212; } .OK small { color: #1d8102; }
"""
Alarms = Mapping[str, Mapping[str, Any]]
"""Properties of each alarm, by its ARN."""


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What a page is drawn from: metrics up to `end`, every alarm, and what is said of it in the
    bar.
    """

    metrics: SyntheticMetrics
    end: float
    alarms: Alarms
    title: str
    selected: str | None
    told: Sequence[str]


def page(body: Body, shown: Shown) -> str:
    """A whole HTML document; `size` says how large it is."""
    width, height = size(body)
    widgets = [_widget(each, shown) for each in body["widgets"]]
    whole = element("body", _bar(shown), widgets, style=f"width:{width}px;height:{height}px")
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("title", shown.title),
        element("style", Markup(STYLE)),
    )
    return "<!doctype html>" + element("html", head, whole, lang="en") + "\n"


def size(body: Body) -> tuple[int, int]:
    """Width and height of a page in pixels."""
    rows = max((each["y"] + each["height"] for each in body["widgets"]), default=0)
    return round(COLUMNS * COLUMN + 2 * MARGIN), round(rows * ROW + 2 * MARGIN + BAR)


def _bar(shown: Shown) -> Markup:
    choice = [] if shown.selected is None else [_selector(shown.selected)]
    told = element("div", *[element("div", line) for line in shown.told], class_="told")
    return element("div", element("h1", shown.title), choice, told, class_="bar")


def _selector(selected: str) -> Markup:
    return element(
        "div", element("span", "Endpoint"), element("b", selected), joined(" ▾"), class_="select"
    )


def _widget(widget: Mapping[str, Any], shown: Shown) -> Markup:
    left, top = MARGIN + widget["x"] * COLUMN, BAR + MARGIN + widget["y"] * ROW
    width, height = widget["width"] * COLUMN - GAP, widget["height"] * ROW - GAP
    style = f"left:{left:g}px;top:{top:g}px;width:{width:g}px;height:{height:g}px"
    content = {"text": _text, "alarm": _alarms, "metric": _graph}[widget["type"]](
        widget["properties"], shown, width, height
    )
    plain = widget["type"] == "text" and widget["height"] == 1
    return element("div", content, class_="widget plain" if plain else "widget", style=style)


def _text(properties: Mapping[str, Any], shown: Shown, width: float, height: float) -> Markup:
    return rendered(properties["markdown"])


def _alarms(properties: Mapping[str, Any], shown: Shown, width: float, height: float) -> Markup:
    states = [(arn, _state(arn, shown)) for arn in properties["alarms"]]
    order = [each for each in STATES if each in (properties.get("states") or STATES)]
    cells = [_alarm(arn, state) for each in order for arn, state in states if state == each]
    title = element("h3", f"{properties['title']} ({len(cells)} of {len(states)})")
    return joined(title, element("div", cells or [element("p", "None.")], class_="alarms"))


def _state(arn: str, shown: Shown) -> str:
    return alarm_state(shown.alarms[arn], shown.metrics, shown.end)


def _alarm(arn: str, state: str) -> Markup:
    name = arn.rsplit(":", 1)[-1]
    return element(
        "div",
        element("b", name),
        element("small", state.replace("_", " ").capitalize()),
        class_=f"alarm {state}",
    )


def _graph(properties: Mapping[str, Any], shown: Shown, width: float, height: float) -> Markup:
    annotations = properties.get("annotations", {})
    axis = properties.get("yAxis", {}).get("left", {})
    frame = Frame(
        width=width - 2 * PADDING,
        height=height - TITLE_HEIGHT - PADDING - 4,
        start=shown.metrics.start,
        end=shown.end,
        unit=str(axis.get("label", "")),
        high=axis.get("max"),
    )
    if annotations.get("alarms"):
        drawn, levels = _of_alarm(shown.alarms[annotations["alarms"][0]], shown)
    else:
        drawn = curves(properties, shown.metrics, shown.end)
        lines = annotations.get("horizontal", ())
        levels = [
            Level(value=each["value"], label=each["label"], color=each["color"]) for each in lines
        ]
    heaped = stacked(drawn) if properties.get("stacked") else drawn
    return joined(element("h3", str(properties["title"])), chart(frame, heaped, levels))


def _of_alarm(alarm: Mapping[str, Any], shown: Shown) -> tuple[list[Curve], list[Level]]:
    """CloudWatch draws what an alarm watches, and its threshold."""
    label = next((each["Label"] for each in alarm.get("Metrics", ()) if "Label" in each), None)
    name = (
        label or f"{alarm['MetricName']} {alarm.get('ExtendedStatistic', alarm.get('Statistic'))}"
    )
    condition = f"{alarm['AlarmName']}: {alarm['Threshold']:g}, {alarm['DatapointsToAlarm']} of {alarm['EvaluationPeriods']}"
    level = Level(value=float(alarm["Threshold"]), label=condition, color=THRESHOLD)
    return [Curve(label=str(name), points=alarm_series(alarm, shown.metrics, shown.end))], [level]
