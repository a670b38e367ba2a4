"""Wrappers of the handlers of MiniStack's CloudWatch that answer otherwise than AWS."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import wraps
from typing import Any

from ministack.services import cloudwatch

from local_cloud.cloudwatch import metric_store
from local_cloud.cloudwatch.queries import Query, Span, evaluate_queries
from local_cloud.cloudwatch.series import MathError, Question, Series, Value

READERS = ("_list_metrics", "_get_metric_statistics", "_get_metric_data")
Fields = Mapping[str, Any]
Handler = Callable[[Fields, Fields, bool, bool], Any]


def install(flush: Callable[[], None]) -> None:
    """Replace the handlers; `flush`, called before every read, stores what is still gathered."""
    cloudwatch._get_metric_data = _get_metric_data_with_math(cloudwatch._get_metric_data)
    cloudwatch._put_metric_alarm = _put_metric_alarm_with_queries(cloudwatch._put_metric_alarm)
    # MiniStack ignores an alarm's dimensions, periods and missing data, and evaluates only when
    # data is put.
    cloudwatch._evaluate_alarm = lambda alarm: None
    cloudwatch._evaluate_all_alarms = lambda: None
    for name in READERS:
        setattr(cloudwatch, name, _flush_first(getattr(cloudwatch, name), flush))


def _flush_first(handler: Handler, flush: Callable[[], None]) -> Handler:
    @wraps(handler)
    def reply(params: Fields, body: Fields, is_cbor: bool, is_json: bool = False) -> Any:
        flush()
        return handler(params, body, is_cbor, is_json)

    return reply


def _put_metric_alarm_with_queries(handler: Handler) -> Handler:
    """PutMetricAlarm keeps the queries of an alarm on metric math."""

    @wraps(handler)
    def reply(params: Fields, body: Fields, is_cbor: bool, is_json: bool = False) -> Any:
        handled = handler(params, body, is_cbor, is_json)
        name, queries = body.get("AlarmName"), body.get("Metrics")
        if queries and name in cloudwatch._alarms:
            alarm = {**cloudwatch._alarms[name], "Metrics": queries}
            cloudwatch._alarms[name] = metric_store.without_metric(alarm)
        return handled

    return reply


def _get_metric_data_with_math(handler: Handler) -> Handler:
    """GetMetricData with expressions, and with the newest first unless requested otherwise."""

    @wraps(handler)
    def reply(params: Fields, body: Fields, is_cbor: bool, is_json: bool = False) -> Any:
        if not (is_cbor or is_json):
            return handler(params, body, is_cbor, is_json)
        try:
            results = _results(body.get("MetricDataQueries") or (), body)
        except MathError as error:
            message = f"Error in expression: {error}"
            return cloudwatch._error(
                "ValidationError", message, 400, use_json=is_json, use_cbor=is_cbor
            )
        if is_json:
            return cloudwatch._json_ok({"MetricDataResults": results})
        encoded = [cloudwatch._cbor_metric_data_result(result) for result in results]
        return cloudwatch._cbor_ok({"MetricDataResults": encoded})

    return reply


def _results(queries: Sequence[Query], body: Fields) -> list[dict[str, Any]]:
    start = cloudwatch._parse_ts(body.get("StartTime")) or 0.0
    end = cloudwatch._parse_ts(body.get("EndTime")) or time.time()

    def read(question: Question, period: float) -> Series:
        return metric_store.series(question, period=period, start=start, end=end)

    span = Span(start=start, end=end, read=read, metrics=metric_store.list_metrics)
    values = evaluate_queries(queries, span)
    newest_first = body.get("ScanBy") != "TimestampAscending"
    return [
        _result(query, series, newest_first)
        for query in queries
        if query.get("ReturnData", True)
        for series in _as_list(values[str(query["Id"])], span, query)
    ]


def _as_list(value: Value, span: Span, query: Query) -> list[Series]:
    if isinstance(value, list):
        return value
    if isinstance(value, Mapping):
        return [value]
    return [dict.fromkeys(span.times(float(query.get("Period") or 60)), value)]


def _result(query: Query, series: Series, newest_first: bool) -> dict[str, Any]:
    times = sorted(series, reverse=newest_first)
    stat = query.get("MetricStat")
    name = query["Id"] if stat is None else stat["Metric"]["MetricName"]
    moments = [datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") for at in times]
    return {
        "Id": query["Id"],
        "Label": query.get("Label") or str(name),
        "Timestamps": moments,
        "Values": [series[at] for at in times],
        "StatusCode": "Complete",
    }
