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

_writing = threading.Lock()


def put(gathered: Iterable[Gathered]) -> None:
    """Adds gathered values, each for the account and region that it belongs to."""
    for item in gathered:
        metric, dimensions = item.metric, dict(item.metric.dimensions)
        base = {"Timestamp": item.at, "Unit": metric.unit, "Dimensions": dimensions}
        with _writing, responses.request_scope(metric.account, metric.region):
            bucket = cloudwatch._metric_bucket(
                (metric.namespace, metric.name, cloudwatch._dims_key(dimensions))
            )
            bucket.extend({**base, "Value": value, "Count": count} for value, count in item.values)


def series(question: Question, *, period: float, start: float, end: float) -> Series:
    """A statistic by period, from `start` to before `end`, all in seconds.

    A period without data is absent.
    """
    key = (question.namespace, question.name, cloudwatch._dims_key(dict(question.dimensions)))
    buckets: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for point in tuple(cloudwatch._metrics.get(key) or ()):
        if start <= point["Timestamp"] < end and question.unit in (None, point["Unit"]):
            buckets[int(point["Timestamp"] // period)].append(point)
    found = {
        number * period: _statistic(buckets[number], question.statistic)
        for number in sorted(buckets)
    }
    return {at: value for at, value in found.items() if value is not None}


def _statistic(points: Sequence[Mapping[str, Any]], name: str) -> float | None:
    statistics = cloudwatch._calc_stats(points)
    if name not in statistics and not cloudwatch._is_percentile_stat(name):
        return None
    value = cloudwatch._stat_value(statistics, name, points)
    return None if value is None else float(value)


def list_metrics() -> list[Found]:
    """Every metric of the account and region in hand."""
    return [
        Found(namespace=namespace, name=name, dimensions=dict(points[0].get("Dimensions") or {}))
        for (namespace, name, _), points in cloudwatch._metrics.items()
        if points
    ]


def forget(namespaces: Sequence[str], before: float) -> None:
    """Drops what the local cloud itself published before a time, of every account."""
    for key, points in list(cloudwatch._metrics._data.items()):
        if key[2][0] in namespaces and points and points[0]["Timestamp"] < before:
            with _writing:
                points[:] = [point for point in points if point["Timestamp"] >= before]


def scopes() -> frozenset[tuple[str, str]]:
    """The accounts and regions that have alarms."""
    return frozenset(key[:2] for key in list(cloudwatch._alarms._data))
