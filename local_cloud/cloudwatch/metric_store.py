"""MiniStack's store of metrics: values put in, time series read out.

Import it only after MiniStack is configured.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ministack.core import responses
from ministack.services import cloudwatch

from local_cloud.cloudwatch.buffer import Gathered
from local_cloud.cloudwatch.series import Found, Question, Series

SINGLE_METRIC_FIELDS = frozenset(
    ("MetricName", "Namespace", "Statistic", "Period", "Dimensions", "ExtendedStatistic", "Unit")
)
_writing = threading.Lock()


def put(gathered: Iterable[Gathered]) -> None:
    """Add gathered values, each for the account and region that it belongs to."""
    for item in gathered:
        metric, dimensions = item.metric, dict(item.metric.dimensions)
        base = {"Timestamp": item.at, "Unit": metric.unit, "Dimensions": dimensions}
        key = (metric.namespace, metric.name, cloudwatch._dims_key(dimensions))
        with _writing, responses.request_scope(metric.account, metric.region):
            cloudwatch._metric_bucket(key).extend(
                {**base, "Value": value, "Count": count} for value, count in item.values
            )


def series(question: Question, *, period: float, start: float, end: float) -> Series:
    """Return a statistic by period, in seconds; a period without data is absent."""
    key = (question.namespace, question.name, cloudwatch._dims_key(dict(question.dimensions)))
    points: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for point in tuple(cloudwatch._metrics.get(key) or ()):
        if start <= point["Timestamp"] < end and question.unit in (None, point["Unit"]):
            points[int(point["Timestamp"] // period)].append(point)
    values = {
        number * period: _value(points[number], question.statistic) for number in sorted(points)
    }
    return {at: value for at, value in values.items() if value is not None}


def _value(points: Sequence[Mapping[str, Any]], statistic: str) -> float | None:
    statistics = cloudwatch._calc_stats(points)
    if statistic not in statistics and not cloudwatch._is_percentile_stat(statistic):
        return None
    value = cloudwatch._stat_value(statistics, statistic, points)
    return None if value is None else float(value)


def list_metrics() -> list[Found]:
    """Return every metric of the present account and region."""
    return [
        Found(namespace=namespace, name=name, dimensions=dict(points[0].get("Dimensions") or {}))
        for (namespace, name, _), points in cloudwatch._metrics.items()
        if points
    ]


def forget(namespaces: Sequence[str], before: float) -> None:
    """Drop the datapoints of some namespaces before a time, of every account."""
    for key, points in list(cloudwatch._metrics._data.items()):
        if key[2][0] in namespaces and points and points[0]["Timestamp"] < before:
            with _writing:
                points[:] = [point for point in points if point["Timestamp"] >= before]


def scopes() -> frozenset[tuple[str, str]]:
    """Return the accounts and regions that have alarms."""
    return frozenset(key[:2] for key in list(cloudwatch._alarms._data))


def without_metric(alarm: Mapping[str, Any]) -> dict[str, Any]:
    """Return an alarm on metric math without the fields of a single metric."""
    return {field: value for field, value in alarm.items() if field not in SINGLE_METRIC_FIELDS}
