"""Graphs of an asynchronous endpoint's queue."""

from __future__ import annotations

from collections.abc import Sequence

from stacks.dashboards.lines import Line
from stacks.dashboards.rows import Row, Shown, of_endpoint
from stacks.dashboards.widget import Graph

TIMES = (("TimeInBacklog", "in the queue"), ("ModelLatency", "in the model"))
"""In microseconds.

Of the first CloudWatch keeps no percentiles (SageMaker developer guide, "Monitor asynchronous
endpoints").
"""


def queue_graphs(
    shown: Shown, backlog: Sequence[Line] = (), waits: Sequence[Line] = ()
) -> list[Graph]:
    """What waits, for how long, and what comes of it; `backlog` and `waits` are lines of the first
    two.
    """
    return [_backlog(shown, backlog), _oldest(shown, waits), _outcomes(shown), _times(shown)]


def _backlog(shown: Shown, lines: Sequence[Line]) -> Graph:
    rows = [
        of_endpoint(shown.endpoint, "ApproximateBacklogSize", "Average", label="waiting"),
        of_endpoint(
            shown.endpoint,
            "ApproximateBacklogSizePerInstance",
            "Average",
            label="waiting for each instance",
        ),
    ]
    return Graph(title="Backlog", rows=rows, unit="requests", lines=lines)


def _oldest(shown: Shown, lines: Sequence[Line]) -> Graph:
    rows = [
        of_endpoint(
            shown.endpoint, "ApproximateAgeOfOldestRequest", "Maximum", label="oldest request"
        )
    ]
    return Graph(title="Age of the oldest request, s", rows=rows, unit="s", lines=lines)


def _outcomes(shown: Shown) -> Graph:
    rows = [
        shown.invocations("InvocationsProcessed", "Sum", label="processed"),
        shown.invocations("InvocationFailures", "Sum", label="failed"),
        shown.invocations("ExpiredRequests", "Sum", label="expired"),
    ]
    return Graph(title="Requests of the queue a minute", rows=rows, unit="requests")


def _times(shown: Shown) -> Graph:
    rows: list[Row] = []
    for number, (metric, label) in enumerate(TIMES):
        rows += shown.changed(
            metric, "Average", "/ 1000000", label=label, names=(f"time{number}", f"seconds{number}")
        )
    return Graph(title="Time of a request, average, s", rows=rows, unit="s")
