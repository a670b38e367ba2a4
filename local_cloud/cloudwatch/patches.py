"""Wrappers of the handlers of MiniStack's CloudWatch that answer otherwise than AWS."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial, wraps
from typing import Any

from ministack.services import cloudwatch

from local_cloud.cloudwatch import metric_store
from local_cloud.cloudwatch.queries import Query, Span, evaluate_queries
from local_cloud.cloudwatch.series import MathError, Question, Series, Value

READERS = ("_list_metrics", "_get_metric_statistics", "_get_metric_data")
Handler = Callable[[Mapping[str, Any], Mapping[str, Any], bool, bool], Any]


def install(flush: Callable[[], None]) -> None:
    """Replaces what is wrong.

    `flush` puts into the store what is still being gathered: it is called before every reading.
    """
    cloudwatch._get_metric_data = _math(cloudwatch._get_metric_data)
    cloudwatch._put_metric_alarm = _with_queries(cloudwatch._put_metric_alarm)
    # MiniStack ignores an alarm's dimensions, periods and missing data, and evaluates only when
    # data is put.
    cloudwatch._evaluate_alarm = lambda alarm: None
    cloudwatch._evaluate_all_alarms = lambda: None
    for name in READERS:
        setattr(cloudwatch, name, _flush_first(getattr(cloudwatch, name), flush))


def _flush_first(handler: Handler, flush: Callable[[], None]) -> Handler:
    @wraps(handler)
    def answer(
        params: Mapping[str, Any], body: Mapping[str, Any], is_cbor: bool, is_json: bool = False
    ) -> Any:
        flush()
        return handler(params, body, is_cbor, is_json)

    return answer


def _with_queries(handler: Handler) -> Handler:
    """PutMetricAlarm keeps the queries of an alarm on metric math."""

    @wraps(handler)
    def answer(
        params: Mapping[str, Any], body: Mapping[str, Any], is_cbor: bool, is_json: bool = False
    ) -> Any:
        reply = handler(params, body, is_cbor, is_json)
        name = body.get("AlarmName")
        if body.get("Metrics") and name in cloudwatch._alarms:
            cloudwatch._alarms[name] = metric_store.without_metric(
                {**cloudwatch._alarms[name], "Metrics": body["Metrics"]}
            )
        return reply

    return answer


def _math(handler: Handler) -> Handler:
    """GetMetricData with expressions, and with the newest first unless asked otherwise."""

    @wraps(handler)
    def answer(
        params: Mapping[str, Any], body: Mapping[str, Any], is_cbor: bool, is_json: bool = False
    ) -> Any:
        if not (is_cbor or is_json):
            return handler(params, body, is_cbor, is_json)
        queries: Sequence[Query] = body.get("MetricDataQueries") or ()
        try:
            results = _results(queries, body)
        except MathError as error:
            reply = f"Error in expression: {error}"
            return cloudwatch._error(
                "ValidationError", reply, 400, use_json=is_json, use_cbor=is_cbor
            )
        if is_cbor:
            return cloudwatch._cbor_ok(
                {
                    "MetricDataResults": [
                        cloudwatch._cbor_metric_data_result(result) for result in results
                    ]
                }
            )
        return cloudwatch._json_ok({"MetricDataResults": results})

    return answer


def _results(queries: Sequence[Query], body: Mapping[str, Any]) -> list[dict[str, Any]]:
    start = cloudwatch._parse_ts(body.get("StartTime")) or 0.0
    end = cloudwatch._parse_ts(body.get("EndTime")) or time.time()
    span = Span(
        start=start,
        end=end,
        read=partial(_read, start=start, end=end),
        metrics=metric_store.list_metrics,
    )
    values, newest_first = (
        evaluate_queries(queries, span),
        body.get("ScanBy") != "TimestampAscending",
    )
    shown = [query for query in queries if query.get("ReturnData", True)]
    return [
        _result(query, series, newest_first)
        for query in shown
        for series in _as_list(values[str(query["Id"])], span, query)
    ]


def _read(question: Question, period: float, *, start: float, end: float) -> Series:
    return metric_store.series(question, period=period, start=start, end=end)


def _as_list(value: Value, span: Span, query: Query) -> list[Series]:
    if isinstance(value, list):
        return value
    if isinstance(value, Mapping):
        return [value]
    return [dict.fromkeys(span.times(float(query.get("Period") or 60)), value)]


def _result(query: Query, series: Series, newest_first: bool) -> dict[str, Any]:
    times = sorted(series, reverse=newest_first)
    return {
        "Id": query["Id"],
        "Label": query.get("Label") or _label(query),
        "Timestamps": [
            datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") for at in times
        ],
        "Values": [series[at] for at in times],
        "StatusCode": "Complete",
    }


def _label(query: Query) -> str:
    """What CloudWatch calls a query without a label: its metric, or its id."""
    stat = query.get("MetricStat")
    return str(query["Id"]) if stat is None else str(stat["Metric"]["MetricName"])
