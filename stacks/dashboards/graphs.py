"""Graphs of requests: how long they take, how many come, how many fail."""

from __future__ import annotations

from collections.abc import Sequence

from stacks.alarms.alarm import HOST, INVOCATIONS
from stacks.dashboards.lines import Line
from stacks.dashboards.widget import Graph, Row, Shown, every_variant, of_endpoint

PERCENTILES = ("p50", "p95", "p99")
ERRORS = (
    ("InvocationModelErrors", "all, without an answer too"),
    ("Invocation4XXErrors", "4XX"),
    ("Invocation5XXErrors", "5XX"),
)
"""Model errors are whatever was not answered with 200 to 299.

A queue publishes none, but counts its failures itself.
"""


def latency(shown: Shown, lines: Sequence[Line] = (), *, overhead: bool = True) -> Graph:
    """Model latency, and SageMaker's overhead, of which CloudWatch keeps no percentiles."""
    rows: list[Row] = []
    for percentile in PERCENTILES:
        names = (f"{percentile}_us", percentile)
        rows += shown.with_changes(
            "ModelLatency", percentile, "/ 1000", label=shown.label(percentile), names=names
        )
    if overhead:
        label = shown.label("SageMaker's overhead, average")
        rows += shown.with_changes(
            "OverheadLatency", "Average", "/ 1000", label=label, names=("overhead_us", "overhead")
        )
    return Graph(title="Latency of the model, ms", rows=rows, unit="ms", lines=lines)


def failed_share(shown: Shown, *, queued: bool = False) -> Graph:
    """The metrics are 0 or 1 for each request, so their averages are shares."""
    rows: list[Row] = []
    for number, (metric, label) in enumerate(_errors(queued)):
        names = (f"share{number}", f"percent{number}")
        rows += shown.with_changes(
            metric, "Average", "* 100", label=shown.label(label), names=names
        )
    return Graph(title="Failed requests, %", rows=rows, unit="%")


def failed_count(shown: Shown, *, queued: bool = False) -> Graph:
    """A minute."""
    rows = [
        shown.invocations(metric, "Sum", label=shown.label(label))
        for metric, label in _errors(queued)
    ]
    return Graph(title="Failed requests a minute", rows=rows, unit="requests")


def requests(shown: Shown) -> Graph:
    """A minute."""
    rows = [shown.invocations("Invocations", "Sum", label=shown.label("requests"))]
    return Graph(title="Requests a minute", rows=rows, unit="requests")


def requests_of_each(shown: Shown, lines: Sequence[Line] = ()) -> Graph:
    """What target tracking follows."""
    rows = [
        shown.invocations(
            "InvocationsPerInstance", "Sum", label=shown.label("requests of each instance")
        )
    ]
    return Graph(
        title="Requests of each instance a minute", rows=rows, unit="requests", lines=lines
    )


def _errors(queued: bool) -> Sequence[tuple[str, str]]:
    return ERRORS[1:] if queued else ERRORS


WAITS = (
    ("ModelLoadingWaitTime", "wait of a request"),
    ("ModelDownloadingTime", "download"),
    ("ModelLoadingTime", "load"),
    ("ModelUnloadingTime", "unload"),
)


def cache_graphs(shown: Shown) -> list[Graph]:
    """Hits, loaded models with loads and unloads, and what a request waits for."""
    return [_hits(shown), _models(shown), _waits(shown)]


def _hits(shown: Shown) -> Graph:
    label = "requests whose model is in memory"
    rows = shown.with_changes(
        "ModelCacheHit", "Average", "* 100", label=label, names=("hits", "percent")
    )
    return Graph(title="Cache hits, %", rows=rows, unit="%", most=100)


def _models(shown: Shown) -> Graph:
    rows = [
        shown.host("LoadedModelCount", "Average", label="models loaded, each instance"),
        shown.invocations("ModelLoadingTime", "SampleCount", label="loads a minute"),
        shown.invocations("ModelUnloadingTime", "SampleCount", label="unloads a minute"),
    ]
    return Graph(title="Models loaded, loads and unloads a minute", rows=rows, unit="models")


def _waits(shown: Shown) -> Graph:
    rows: list[Row] = []
    for number, (metric, label) in enumerate(WAITS):
        rows += shown.with_changes(
            metric, "Average", "/ 1000", label=label, names=(f"wait{number}", f"ms{number}")
        )
    return Graph(title="Loading, ms on average", rows=rows, unit="ms")


TIMES = (("TimeInBacklog", "in the queue"), ("ModelLatency", "in the model"))
"""In microseconds.

Of the first CloudWatch keeps no percentiles (SageMaker developer guide, "Monitor asynchronous
endpoints").
"""


def queue_graphs(
    shown: Shown, backlog: Sequence[Line] = (), waits: Sequence[Line] = ()
) -> list[Graph]:
    """What waits, for how long, and what comes of it.

    `backlog` and `waits` are lines of the first two.
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
        rows += shown.with_changes(
            metric, "Average", "/ 1000000", label=label, names=(f"time{number}", f"seconds{number}")
        )
    return Graph(title="Time of a request, average, s", rows=rows, unit="s")


def variant_graphs(endpoint: str, slo: Sequence[Line] = ()) -> list[Graph]:
    """Latency, requests, failures and instances of each variant, shadows too."""
    return [
        Graph(
            title="Variants: p99 of the model, ms",
            rows=[every_variant(endpoint, INVOCATIONS, "ModelLatency", "p99", " / 1000")],
            unit="ms",
            lines=slo,
        ),
        Graph(
            title="Variants: requests a minute",
            rows=[every_variant(endpoint, INVOCATIONS, "Invocations", "Sum")],
            unit="requests",
        ),
        Graph(
            title="Variants: failed requests, %",
            rows=[
                every_variant(endpoint, INVOCATIONS, "InvocationModelErrors", "Average", " * 100")
            ],
            unit="%",
        ),
        Graph(
            title="Variants: instances that reported",
            rows=[every_variant(endpoint, HOST, "MemoryUtilization", "SampleCount")],
            unit="instances",
        ),
    ]
