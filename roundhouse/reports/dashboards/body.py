"""A dashboard as CloudWatch opens it: the selector's value in place, graphs' metrics as curves."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from local_cloud.cloudwatch.queries import Query, Span, evaluate_queries, matching
from local_cloud.cloudwatch.series import Series
from roundhouse.reports.dashboards.synthetic import PERIOD, SyntheticMetrics

SEARCH = re.compile(r"SEARCH\(\s*'(?P<search>[^']*)'\s*,\s*'(?P<statistic>[^']*)'")
Body = Mapping[str, Any]
Row = Sequence[Any]
"""A row of a graph's metrics: namespace, metric, dimensions in pairs, and options at its end."""


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One line of a graph."""

    label: str
    points: Series
    color: str | None = None


def selected_body(body: Body, selected: str | None = None) -> Body:
    """Return a body with the selector's value in place; default: its default."""
    if selected is not None:
        variables = [{**variable, "defaultValue": selected} for variable in body["variables"]]
        body = {**body, "variables": variables}
    text = json.dumps(body["widgets"])
    for variable in body.get("variables", ()):
        text = text.replace(variable["pattern"], variable["defaultValue"])
    return {**body, "widgets": json.loads(text)}


def curves(properties: Mapping[str, Any], metrics: SyntheticMetrics, end: float) -> list[Curve]:
    """Return every visible line of a graph, in order. Raises MathError."""
    span, rows = _span(metrics, end), properties.get("metrics", ())
    queries = [_query(row, number, properties) for number, row in enumerate(rows)]
    values = evaluate_queries(queries, span)
    return [
        curve
        for row, query in zip(rows, queries, strict=True)
        if _options(row).get("visible", True)
        for curve in _row_curves(row, query, values[query["Id"]], span)
    ]


def stacked(drawn: Sequence[Curve]) -> list[Curve]:
    """Return each curve on top of those before it."""
    sums: dict[float, float] = {}
    results: list[Curve] = []
    for curve in drawn:
        times = sorted({*sums, *curve.points})
        sums = {time: sums.get(time, 0.0) + curve.points.get(time, 0.0) for time in times}
        results.append(dataclasses.replace(curve, points=sums))
    return results


def alarm_query(alarm: Mapping[str, Any]) -> tuple[list[Query], str]:
    """Return an alarm's metrics as queries, and the id of the one that it watches."""
    if "Metrics" in alarm:
        queries = list(alarm["Metrics"])
        return queries, next(query["Id"] for query in queries if query.get("ReturnData", True))
    metric = {name: alarm[name] for name in ("Namespace", "MetricName", "Dimensions")}
    stat = alarm.get("ExtendedStatistic", alarm.get("Statistic"))
    statistic = {"Metric": metric, "Period": alarm["Period"], "Stat": stat}
    return [{"Id": "watched", "MetricStat": statistic}], "watched"


def alarm_series(alarm: Mapping[str, Any], metrics: SyntheticMetrics, end: float) -> Series:
    """Return the values that an alarm compares with its threshold. Raises MathError."""
    queries, watched = alarm_query(alarm)
    value = evaluate_queries(queries, _span(metrics, end))[watched]
    return value if isinstance(value, Mapping) else {}


def _span(metrics: SyntheticMetrics, end: float) -> Span:
    return Span(start=metrics.start, end=end, read=metrics.read, metrics=metrics.all_metrics)


def _options(row: Row) -> Mapping[str, Any]:
    return row[-1] if isinstance(row[-1], dict) else {}


def _query(row: Row, number: int, properties: Mapping[str, Any]) -> Query:
    options = _options(row)
    name = str(options.get("id", f"row{number}"))
    if "expression" in options:
        return {"Id": name, "Expression": options["expression"]}
    namespace, metric_name, *pairs = (part for part in row if not isinstance(part, dict))
    dimensions = [
        {"Name": key, "Value": value} for key, value in zip(pairs[::2], pairs[1::2], strict=True)
    ]
    metric = {"Namespace": namespace, "MetricName": metric_name, "Dimensions": dimensions}
    period = options.get("period", properties.get("period", 300))
    stat = options.get("stat", properties.get("stat", "Average"))
    return {"Id": name, "MetricStat": {"Metric": metric, "Period": period, "Stat": stat}}


def _row_curves(row: Row, query: Query, value: Any, span: Span) -> Iterator[Curve]:
    """Yield a row's curve; a search has one for each metric, named by its dimensions."""
    options = _options(row)
    label = str(options.get("label", query["Id"] if "expression" in options else row[1]))
    color = options.get("color")
    if isinstance(value, Mapping):
        yield Curve(label=label, points=value, color=color)
    elif isinstance(value, list):
        search = SEARCH.search(str(options["expression"]))
        matches = [] if search is None else matching(search["search"], span.metrics())
        for metric, series in zip(matches, value, strict=True):
            name = label
            for key, dimension in metric.dimensions.items():
                name = name.replace(f"${{PROP('Dim.{key}')}}", dimension)
            yield Curve(label=name, points=series, color=color)
    else:
        points = dict.fromkeys(span.times(PERIOD), float(value))
        yield Curve(label=label, points=points, color=color)
