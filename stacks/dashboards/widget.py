"""Widgets, and their places on CloudWatch's grid of 24 columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stacks.alarms.alarm import HOST, INVOCATIONS
from stacks.dashboards.lines import Line

Widget = dict[str, Any]
COLUMNS, THIRD, GRAPH_HEIGHT, HEADING_HEIGHT = 24, 8, 6, 1
PERIOD = 60
MOST_ALARMS = 100
"""That one widget may list."""


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
class Section:
    """A heading and its widgets."""

    title: str
    widgets: Sequence[Widget]


def graph(region: str, wanted: Graph) -> Widget:
    """A graph as CloudWatch reads it."""
    axis = {
        "min": 0,
        "label": wanted.unit,
        "showUnits": False,
        **({} if wanted.most is None else {"max": wanted.most}),
    }
    properties: dict[str, Any] = {
        "title": wanted.title,
        "region": region,
        "view": "timeSeries",
        "stacked": wanted.stacked,
        "period": PERIOD,
        "metrics": list(wanted.rows),
        "yAxis": {"left": axis},
    }
    if wanted.lines:
        properties["annotations"] = {"horizontal": [line.annotation for line in wanted.lines]}
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
    """Alarms and the state that each is in; those of `states` only, where there are any.

    A widget for every hundred.
    """
    found, filtered = [], {"states": list(states)} if states else {}
    for begin in range(0, len(alarm_arns), MOST_ALARMS):
        listed = list(alarm_arns[begin : begin + MOST_ALARMS])
        properties = {
            "title": title,
            "alarms": listed,
            "sortBy": "stateUpdatedTimestamp",
            **filtered,
        }
        found.append(
            {"type": "alarm", "width": COLUMNS // 2, "height": height, "properties": properties}
        )
    return found


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
    """Each section that has something to show, below its heading, in rows that are full."""
    found: list[Widget] = []
    for section in sections:
        if section.widgets:
            found += [text(f"## {section.title}"), *_filling(section.widgets)]
    return found


def _filling(widgets: Sequence[Widget]) -> list[Widget]:
    """Three in a row, and two in the last ones where they would leave a gap."""
    thirds = len(widgets) - min({0: 0, 1: 4, 2: 2}[len(widgets) % 3], len(widgets))
    wide = COLUMNS // min(2, max(1, len(widgets) - thirds))
    return [
        {**widget, "width": THIRD if place < thirds else wide}
        for place, widget in enumerate(widgets)
    ]


Row = list[Any]
EACH_VARIANT = "${PROP('Dim.VariantName')}"
"""A label that CloudWatch fills in for each metric that a search finds."""


@dataclass(frozen=True, kw_only=True)
class Shown:
    """The variant whose metrics a graph shows; `word` begins its labels where several are shown."""

    endpoint: str
    variant: str
    word: str = ""

    def metric(self, namespace: str, name: str, stat: str, **options: Any) -> Row:
        """One statistic of one metric of the variant."""
        return [
            namespace,
            name,
            "EndpointName",
            self.endpoint,
            "VariantName",
            self.variant,
            {"stat": stat, **options},
        ]

    def invocations(self, name: str, stat: str, **options: Any) -> Row:
        """Of the requests that SageMaker passed on."""
        return self.metric(INVOCATIONS, name, stat, **options)

    def with_changes(
        self, metric: str, stat: str, change: str, *, label: str, names: tuple[str, str]
    ) -> list[Row]:
        """A statistic of the requests in another unit.

        Itself, hidden, and what `change` makes of it; `names` are their ids.
        """
        return [
            self.invocations(metric, stat, **hidden(names[0])),
            computed(f"{names[0]} {change}", label, names[1]),
        ]

    def host(self, name: str, stat: str, **options: Any) -> Row:
        """Of the instances."""
        return self.metric(HOST, name, stat, **options)

    def label(self, text: str) -> str:
        """With the variant's word before it."""
        return f"{self.word} {text}".strip()


def computed(expression: str, label: str, name: str, **options: Any) -> Row:
    """One expression."""
    return [{"expression": expression, "label": label, "id": name, **options}]


def of_endpoint(endpoint: str, name: str, stat: str, **options: Any) -> Row:
    """A metric that is published of the endpoint as a whole: those of a queue."""
    return [INVOCATIONS, name, "EndpointName", endpoint, {"stat": stat, **options}]


def every_variant(endpoint: str, namespace: str, name: str, stat: str, change: str = "") -> Row:
    """A metric of every variant that has published it in the last two weeks.

    `change` is what is done to each value.
    """
    found = (
        f'{{{namespace},EndpointName,VariantName}} MetricName="{name}" EndpointName="{endpoint}"'
    )
    return computed(f"SEARCH('{found}', '{stat}', 60){change}", EACH_VARIANT, "variants")


def hidden(name: str) -> dict[str, Any]:
    """Options of a metric that only expressions use."""
    return {"id": name, "visible": False}
