"""Graphs of requests: how long they take, how many come, how many fail."""

from __future__ import annotations

from collections.abc import Sequence

from onboarding.metrics import HOST, INVOCATIONS
from stacks.dashboards.lines import Line
from stacks.dashboards.widget import (
    Graph,
    Row,
    Shown,
    computed,
    every_variant,
    hidden,
    of_endpoint,
)

ERRORS = (
    ("InvocationModelErrors", "all, without an answer too"),
    ("Invocation4XXErrors", "4XX"),
    ("Invocation5XXErrors", "5XX"),
)
"""Model errors are whatever was not answered with 200 to 299; a queue publishes none."""
LOADING = (
    ("ModelLoadingWaitTime", "wait of a request"),
    ("ModelDownloadingTime", "download"),
    ("ModelLoadingTime", "load"),
    ("ModelUnloadingTime", "unload"),
)
QUEUE_TIMES = (("TimeInBacklog", "in the queue"), ("ModelLatency", "in the model"))
"""In microseconds; CloudWatch keeps no percentiles of the first.

Source: SageMaker developer guide, "Monitor asynchronous endpoints".
"""


def latency(
    shown: Shown, lines: Sequence[Line] = (), *, overhead: bool = True, end_to_end: bool = False
) -> Graph:
    """Model latency, and SageMaker's overhead, of which CloudWatch keeps no percentiles.

    `end_to_end` adds the sum of both averages: what InvokeEndpoint takes inside SageMaker.
    """
    rows: list[Row] = []
    for percentile in ("p50", "p95", "p99"):
        ids = (f"{percentile}_us", percentile)
        rows += shown.converted("ModelLatency", percentile, "/ 1000", label=percentile, ids=ids)
    if overhead:
        label, ids = "SageMaker's overhead, average", ("overhead_us", "overhead")
        rows += shown.converted("OverheadLatency", "Average", "/ 1000", label=label, ids=ids)
    if overhead and end_to_end:
        rows.append(shown.invocations("ModelLatency", "Average", **hidden("model_us")))
        total = "(model_us + overhead_us) / 1000"
        rows.append(computed(total, "end to end, average", "end_to_end"))
    return Graph(title="Latency of the model, ms", rows=rows, unit="ms", lines=lines)


def failed_share(shown: Shown, *, queued: bool = False) -> Graph:
    """The metrics are 0 or 1 for each request, so their averages are shares."""
    rows = _averages(shown, ERRORS[queued:], "* 100", ids=("share", "percent"))
    return Graph(title="Failed requests, %", rows=rows, unit="%")


def failed_count(shown: Shown, *, queued: bool = False) -> Graph:
    """A minute."""
    rows = [shown.invocations(metric, "Sum", label=label) for metric, label in ERRORS[queued:]]
    return Graph(title="Failed requests a minute", rows=rows, unit="requests")


def requests(shown: Shown) -> Graph:
    """A minute."""
    rows = [shown.invocations("Invocations", "Sum", label="requests")]
    return Graph(title="Requests a minute", rows=rows, unit="requests")


def requests_of_each(shown: Shown, lines: Sequence[Line] = ()) -> Graph:
    """What target tracking follows."""
    rows = [shown.invocations("InvocationsPerInstance", "Sum", label="requests of each instance")]
    title = "Requests of each instance a minute"
    return Graph(title=title, rows=rows, unit="requests", lines=lines)


def cache_graphs(shown: Shown) -> list[Graph]:
    """Hits, loaded models with loads and unloads, and what a request waits for."""
    label, ids = "requests whose model is in memory", ("hits", "percent")
    hits = shown.converted("ModelCacheHit", "Average", "* 100", label=label, ids=ids)
    models = [
        shown.host("LoadedModelCount", "Average", label="models loaded, each instance"),
        shown.invocations("ModelLoadingTime", "SampleCount", label="loads a minute"),
        shown.invocations("ModelUnloadingTime", "SampleCount", label="unloads a minute"),
    ]
    times = _averages(shown, LOADING, "/ 1000", ids=("wait", "ms"))
    return [
        Graph(title="Cache hits, %", rows=hits, unit="%", most=100),
        Graph(title="Models loaded, loads and unloads a minute", rows=models, unit="models"),
        Graph(title="Loading, ms on average", rows=times, unit="ms"),
    ]


def queue_graphs(
    shown: Shown, backlog: Sequence[Line] = (), waits: Sequence[Line] = ()
) -> list[Graph]:
    """What waits, for how long, and what comes of it; `backlog` and `waits` are lines."""
    size, age = "ApproximateBacklogSize", "ApproximateAgeOfOldestRequest"
    waiting = [
        of_endpoint(shown.endpoint, size, "Average", "waiting"),
        of_endpoint(shown.endpoint, f"{size}PerInstance", "Average", "waiting for each instance"),
    ]
    oldest = [of_endpoint(shown.endpoint, age, "Maximum", "oldest request")]
    outcomes = [
        shown.invocations("InvocationsProcessed", "Sum", label="processed"),
        shown.invocations("InvocationFailures", "Sum", label="failed"),
        shown.invocations("ExpiredRequests", "Sum", label="expired"),
    ]
    times = _averages(shown, QUEUE_TIMES, "/ 1000000", ids=("time", "seconds"))
    return [
        Graph(title="Backlog", rows=waiting, unit="requests", lines=backlog),
        Graph(title="Age of the oldest request, s", rows=oldest, unit="s", lines=waits),
        Graph(title="Requests of the queue a minute", rows=outcomes, unit="requests"),
        Graph(title="Time of a request, average, s", rows=times, unit="s"),
    ]


def variant_graphs(endpoint: str, slo: Sequence[Line] = ()) -> list[Graph]:
    """Latency, requests, failures and instances of each variant, shadows too."""
    latency = every_variant(endpoint, INVOCATIONS, "ModelLatency", "p99", " / 1000")
    count = every_variant(endpoint, INVOCATIONS, "Invocations", "Sum")
    failed = every_variant(endpoint, INVOCATIONS, "InvocationModelErrors", "Average", " * 100")
    reported = every_variant(endpoint, HOST, "MemoryUtilization", "SampleCount")
    return [
        Graph(title="Variants: p99 of the model, ms", rows=[latency], unit="ms", lines=slo),
        Graph(title="Variants: requests a minute", rows=[count], unit="requests"),
        Graph(title="Variants: failed requests, %", rows=[failed], unit="%"),
        Graph(title="Variants: instances that reported", rows=[reported], unit="instances"),
    ]


def _averages(
    shown: Shown, metrics: Sequence[tuple[str, str]], change: str, *, ids: tuple[str, str]
) -> list[Row]:
    """Averages of (metric, label) pairs in another unit; their ids are numbered."""
    raw, result = ids
    return [
        row
        for number, (metric, label) in enumerate(metrics)
        for row in shown.converted(
            metric, "Average", change, label=label, ids=(f"{raw}{number}", f"{result}{number}")
        )
    ]
