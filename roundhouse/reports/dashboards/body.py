"""A dashboard as CloudWatch opens it.

The selector's value in place, every graph's metrics as curves.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from local_cloud.cloudwatch.queries import Query, Span, evaluate_queries, matching
from local_cloud.cloudwatch.series import Series
from roundhouse.reports.dashboards.synthetic import PERIOD, SyntheticMetrics
from template_rules.dashboard_body import SEARCH, with_defaults

Body = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One line of a graph."""

    label: str
    points: Series
    color: str | None = None


def selected_body(body: Body, selected: str | None = None) -> Body:
    """A body with the selector's value in place; default: its default."""
    if selected is not None:
        variables = [
            {**variable, "defaultValue": selected} for variable in body.get("variables", ())
        ]
        body = {**body, "variables": variables}
    return with_defaults(body)


def curves(properties: Mapping[str, Any], metrics: SyntheticMetrics, end: float) -> list[Curve]:
    """Every visible line of a graph, in order. Raises MathError."""
    rows = [
        _Row.of(row, place, properties) for place, row in enumerate(properties.get("metrics", ()))
    ]
    span = Span(start=metrics.start, end=end, read=metrics.read, metrics=metrics.all_metrics)
    values = evaluate_queries([row.query for row in rows], span)
    return [
        curve
        for row in rows
        if row.visible
        for curve in row.curves(values[row.name], metrics, span)
    ]


def stacked(drawn: Sequence[Curve]) -> list[Curve]:
    """Each curve on top of those before it."""
    heap: dict[float, float] = {}
    found: list[Curve] = []
    for curve in drawn:
        heap = {
            at: heap.get(at, 0.0) + curve.points.get(at, 0.0)
            for at in sorted({*heap, *curve.points})
        }
        found.append(dataclasses.replace(curve, points=heap))
    return found


def alarm_query(alarm: Mapping[str, Any]) -> tuple[list[Query], str]:
    """An alarm's metrics as queries, and the id of the one that it watches."""
    if "Metrics" in alarm:
        return list(alarm["Metrics"]), next(
            query["Id"] for query in alarm["Metrics"] if query.get("ReturnData", True)
        )
    metric = {
        "Namespace": alarm["Namespace"],
        "MetricName": alarm["MetricName"],
        "Dimensions": alarm["Dimensions"],
    }
    stat = alarm.get("ExtendedStatistic", alarm.get("Statistic"))
    return [
        {"Id": "watched", "MetricStat": {"Metric": metric, "Period": alarm["Period"], "Stat": stat}}
    ], "watched"


def alarm_series(alarm: Mapping[str, Any], metrics: SyntheticMetrics, end: float) -> Series:
    """What an alarm compares with its threshold. Raises MathError."""
    queries, watched = alarm_query(alarm)
    value = evaluate_queries(
        queries, Span(start=metrics.start, end=end, read=metrics.read, metrics=metrics.all_metrics)
    )[watched]
    return value if isinstance(value, Mapping) else {}


@dataclass(frozen=True, kw_only=True)
class _Row:
    """One row of a graph's metrics, as a query."""

    name: str
    query: Query
    options: Mapping[str, Any]
    plain: str
    """Its label where it names none."""

    @classmethod
    def of(cls, row: Sequence[Any], place: int, properties: Mapping[str, Any]) -> _Row:
        options = row[-1] if isinstance(row[-1], dict) else {}
        parts = [part for part in row if not isinstance(part, dict)]
        name, period = (
            str(options.get("id", f"row{place}")),
            options.get("period", properties.get("period", 300)),
        )
        if "expression" in options:
            return cls(
                name=name,
                query={"Id": name, "Expression": options["expression"]},
                options=options,
                plain=name,
            )
        dimensions = [
            {"Name": key, "Value": value}
            for key, value in zip(parts[2::2], parts[3::2], strict=True)
        ]
        metric = {"Namespace": parts[0], "MetricName": parts[1], "Dimensions": dimensions}
        stat = options.get("stat", properties.get("stat", "Average"))
        query = {"Id": name, "MetricStat": {"Metric": metric, "Period": period, "Stat": stat}}
        return cls(name=name, query=query, options=options, plain=str(parts[1]))

    @property
    def visible(self) -> bool:
        return bool(self.options.get("visible", True))

    def curves(self, value: Any, metrics: SyntheticMetrics, span: Span) -> Iterator[Curve]:
        label, color = str(self.options.get("label", self.plain)), self.options.get("color")
        if isinstance(value, Mapping):
            yield Curve(label=label, points=value, color=color)
        elif isinstance(value, list):
            for series, words in zip(value, self._dimensions(metrics), strict=True):
                yield Curve(label=_filled_in(label, words), points=series, color=color)
        else:
            yield Curve(
                label=label, points=dict.fromkeys(span.times(PERIOD), float(value)), color=color
            )

    def _dimensions(self, metrics: SyntheticMetrics) -> list[Mapping[str, str]]:
        """The dimensions of each metric that the row's search finds, in its order."""
        search = SEARCH.search(str(self.options["expression"]))
        return (
            []
            if search is None
            else [metric.dimensions for metric in matching(search["search"], metrics.all_metrics())]
        )


def _filled_in(label: str, dimensions: Mapping[str, str]) -> str:
    """A dynamic label for one metric of a search."""
    for name, value in dimensions.items():
        label = label.replace(f"${{PROP('Dim.{name}')}}", value)
    return label
