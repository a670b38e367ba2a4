"""MiniStack's store of metrics: values put in, time series read out.

Import it only after MiniStack is configured.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ministack.core import responses
from ministack.services import cloudwatch

from local_cloud.cloudwatch.buffer import Gathered
from local_cloud.cloudwatch.metric_math import Question, Series

READERS = ("_list_metrics", "_get_metric_statistics", "_get_metric_data")
_writing = threading.Lock()


def install(flush: Callable[[], None]) -> None:
    """Call `flush`, which stores what is still gathered, before every read of metrics."""
    for name in READERS:
        setattr(cloudwatch, name, _flush_first(getattr(cloudwatch, name), flush))


def _flush_first(handler: Callable[..., Any], flush: Callable[[], None]) -> Callable[..., Any]:
    def reply(*request: Any, **more: Any) -> Any:
        flush()
        return handler(*request, **more)

    return reply


def put(gathered: Iterable[Gathered]) -> None:
    """Add gathered values, each for the account and region that it belongs to."""
    for item in gathered:
        metric, dimensions = item.metric, dict(item.metric.dimensions)
        base = {"Timestamp": item.at, "Unit": metric.unit, "Dimensions": dimensions}
        key = (metric.namespace, metric.name, cloudwatch._dims_key(dimensions))
        with _writing, responses.request_scope(metric.account, metric.region):
            cloudwatch._metric_bucket(key).extend(
                {**base, "Value": value, "Count": count} for value, count in item.counts.items()
            )


def series(question: Question, *, period: float, start: float, end: float) -> Series:
    """Return a statistic by period, in seconds; a period without data is absent."""
    key = (question.namespace, question.name, cloudwatch._dims_key(dict(question.dimensions)))
    points: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for point in tuple(cloudwatch._metrics.get(key) or ()):
        if start <= point["Timestamp"] < end and question.unit in (None, point["Unit"]):
            points[int(point["Timestamp"] // period)].append(point)
    statistic, values = question.statistic, {}
    for number in sorted(points):
        statistics = cloudwatch._calc_stats(points[number])
        if statistic in statistics or cloudwatch._is_percentile_stat(statistic):
            values[number * period] = cloudwatch._stat_value(statistics, statistic, points[number])
    return {at: float(value) for at, value in values.items() if value is not None}


def forget(namespaces: Sequence[str], before: float) -> None:
    """Drop the datapoints of some namespaces before a time, of every account."""
    for key, points in list(cloudwatch._metrics._data.items()):
        if key[2][0] in namespaces and points and points[0]["Timestamp"] < before:
            with _writing:
                points[:] = [point for point in points if point["Timestamp"] >= before]
