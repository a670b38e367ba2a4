"""Widgets, and their positions on CloudWatch's grid of 24 columns."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from onboarding.metrics import HOST, INVOCATIONS
from stacks.dashboards.lines import Line
from stacks.template import Resource

Widget = dict[str, Any]
Row = list[Any]
Section = tuple[str, Sequence[Widget]]
"""A heading and its widgets."""
COLUMNS, THIRD, GRAPH_HEIGHT, HEADING_HEIGHT = 24, 8, 6, 1
PERIOD = 60
SETTINGS = {"start": "-PT3H", "periodOverride": "inherit"}
"""Of every dashboard: a longer period would sum more than the minute that the lines are about."""
MOST_ALARMS = 100
"""That one widget may list."""
EACH_VARIANT = "${PROP('Dim.VariantName')}"
"""A label that CloudWatch fills in for each metric that a search finds."""


@dataclass(frozen=True, kw_only=True)
class Graph:
    """A graph of metrics over time. `unit` is that of the left axis, whose values begin at 0."""

    title: str
    rows: Sequence[Row]
    unit: str
    lines: Sequence[Line] = ()
    most: float | None = None
    stacked: bool = False


@dataclass(frozen=True, kw_only=True)
class Shown:
    """The variant whose metrics a graph shows."""

    endpoint: str
    variant: str

    def invocations(self, name: str, stat: str, **options: Any) -> Row:
        """One statistic of the requests that SageMaker passed on."""
        return self._row(INVOCATIONS, name, {"stat": stat, **options})

    def host(self, name: str, stat: str, **options: Any) -> Row:
        """One statistic of the instances."""
        return self._row(HOST, name, {"stat": stat, **options})

    def converted(
        self, metric: str, stat: str, change: str, *, label: str, ids: tuple[str, str]
    ) -> list[Row]:
        """A statistic of the requests, hidden, and what `change` makes of it."""
        raw, result = ids
        return [
            self.invocations(metric, stat, **hidden(raw)),
            computed(f"{raw} {change}", label, result),
        ]

    def _row(self, namespace: str, name: str, options: dict[str, Any]) -> Row:
        dimensions = ["EndpointName", self.endpoint, "VariantName", self.variant]
        return [namespace, name, *dimensions, options]


def computed(expression: str, label: str, name: str) -> Row:
    """One expression."""
    return [{"expression": expression, "label": label, "id": name}]


def of_endpoint(endpoint: str, name: str, stat: str, label: str) -> Row:
    """A metric that is published of the endpoint as a whole: those of a queue."""
    return [INVOCATIONS, name, "EndpointName", endpoint, {"stat": stat, "label": label}]


def every_variant(endpoint: str, namespace: str, name: str, stat: str, change: str = "") -> Row:
    """A metric of every variant that published it in the last two weeks, with `change` applied."""
    search = (
        f'{{{namespace},EndpointName,VariantName}} MetricName="{name}" EndpointName="{endpoint}"'
    )
    return computed(f"SEARCH('{search}', '{stat}', 60){change}", EACH_VARIANT, "variants")


def hidden(name: str) -> dict[str, Any]:
    """Options of a metric that only expressions use."""
    return {"id": name, "visible": False}


def dashboard(name: str, body: dict[str, Any]) -> Resource:
    """Return an `AWS::CloudWatch::Dashboard`."""
    properties = {"DashboardName": name, "DashboardBody": json.dumps(body, sort_keys=True)}
    return {"Type": "AWS::CloudWatch::Dashboard", "Properties": properties}


def graph(region: str, content: Graph) -> Widget:
    """A graph as CloudWatch reads it."""
    most = {} if content.most is None else {"max": content.most}
    properties: dict[str, Any] = {
        "title": content.title,
        "region": region,
        "view": "timeSeries",
        "stacked": content.stacked,
        "period": PERIOD,
        "metrics": list(content.rows),
        "yAxis": {"left": {"min": 0, "label": content.unit, "showUnits": False, **most}},
    }
    if content.lines:
        properties["annotations"] = {"horizontal": [line.annotation for line in content.lines]}
    return {"type": "metric", "width": THIRD, "height": GRAPH_HEIGHT, "properties": properties}


def alarm_graph(region: str, title: str, alarm_arn: str) -> Widget:
    """The metric of one alarm, and its threshold."""
    properties = {
        "title": title,
        "region": region,
        "view": "timeSeries",
        "yAxis": {"left": {"min": 0}},
        "annotations": {"alarms": [alarm_arn]},
    }
    return {"type": "metric", "width": THIRD, "height": GRAPH_HEIGHT, "properties": properties}


def alarm_states(
    title: str, alarm_arns: Sequence[str], *, height: int, states: Sequence[str] = ()
) -> list[Widget]:
    """Alarms and their states, or only those in one of `states`; a widget for every hundred."""
    common = {
        "title": title,
        "sortBy": "stateUpdatedTimestamp",
        **({"states": list(states)} if states else {}),
    }
    return [
        {
            "type": "alarm",
            "width": COLUMNS // 2,
            "height": height,
            "properties": {**common, "alarms": list(alarm_arns[first : first + MOST_ALARMS])},
        }
        for first in range(0, len(alarm_arns), MOST_ALARMS)
    ]


def text(markdown: str, *, width: int = COLUMNS, height: int = HEADING_HEIGHT) -> Widget:
    """Words."""
    return {"type": "text", "width": width, "height": height, "properties": {"markdown": markdown}}


def laid_out(widgets: Sequence[Widget]) -> list[Widget]:
    """Widgets from left to right, in a new row whenever one does not fit any more.

    Each row is as high as its highest.
    """
    placed: list[Widget] = []
    x = y = height = 0
    for widget in widgets:
        if x + widget["width"] > COLUMNS:
            x, y, height = 0, y + height, 0
        placed.append({**widget, "x": x, "y": y})
        x, height = x + widget["width"], max(height, widget["height"])
    return placed


def with_headings(sections: Sequence[Section]) -> list[Widget]:
    """Each section that has something to show, below its heading, in rows that are full.

    Three widgets in a row, and two in the last rows where three would leave a gap.
    """
    found: list[Widget] = []
    for title, widgets in sections:
        count = len(widgets)
        thirds = count - min((0, 4, 2)[count % 3], count)
        wide = COLUMNS // min(2, max(1, count - thirds))
        found += [text(f"## {title}")] if widgets else []
        found += [{**widget, "width": THIRD} for widget in widgets[:thirds]]
        found += [{**widget, "width": wide} for widget in widgets[thirds:]]
    return found
