"""MiniStack's store of metrics: values put in, time series read out.

Import it only after MiniStack is configured.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from ministack.core import responses
from ministack.services import cloudwatch

from local_cloud.cloudwatch.metric_math import Question, Series
from local_cloud.settings import seconds_per_minute

Point = dict[str, Any]
SLOT_SECONDS = seconds_per_minute() / 6
"""The finest resolution of SageMaker's metrics: ten of AWS's seconds."""
_newest: dict[tuple[object, ...], tuple[int, dict[float, Point]]] = {}
"""By account, region and metric: the newest slot, and its points by value."""
_writing = threading.Lock()


def add(
    namespace: str,
    name: str,
    value: float,
    dimensions: Mapping[str, str],
    unit: str = "None",
    at: float | None = None,
) -> None:
    """Add a value of three digits to a metric of the present account and region, now or `at`.

    Equal values of a slot are one point: a load's latencies would be as many points as requests.
    """
    at, value = time.time() if at is None else at, float(f"{value:.3g}")
    key, slot = (namespace, name, cloudwatch._dims_key(dimensions)), int(at // SLOT_SECONDS)
    scoped = (responses.get_account_id(), responses.get_region(), *key)
    with _writing:
        newest, points = _newest.get(scoped, (slot, {}))
        if newest != slot:
            points = {}
        if value in points:
            points[value]["Count"] += 1
        else:
            fields = {"Timestamp": at, "Unit": unit, "Dimensions": dict(dimensions)}
            points[value] = {**fields, "Value": value, "Count": 1}
            cloudwatch._metric_bucket(key).append(points[value])
        _newest[scoped] = (slot, points)


def series(question: Question, *, period: float, start: float, end: float) -> Series:
    """Return a statistic by period, in seconds; a period without data is absent."""
    key = (question.namespace, question.name, cloudwatch._dims_key(dict(question.dimensions)))
    points: dict[int, list[Point]] = defaultdict(list)
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
