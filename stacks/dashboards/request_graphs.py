"""Graphs of requests: how long they take, how many come, how many fail."""

from __future__ import annotations

from collections.abc import Sequence

from stacks.dashboards.lines import Line
from stacks.dashboards.rows import Row, Shown
from stacks.dashboards.widget import Graph

PERCENTILES = ("p50", "p95", "p99")
ERRORS = (
    ("InvocationModelErrors", "all, without an answer too"),
    ("Invocation4XXErrors", "4XX"),
    ("Invocation5XXErrors", "5XX"),
)
"""Model errors are whatever was not answered with 200 to 299; a queue publishes none, but counts
its failures itself.
"""


def latency(shown: Shown, lines: Sequence[Line] = (), *, overhead: bool = True) -> Graph:
    """Model latency, and SageMaker's own time around it, of which CloudWatch keeps no percentiles."""
    rows: list[Row] = []
    for percentile in PERCENTILES:
        names = (f"{percentile}_us", percentile)
        rows += shown.changed(
            "ModelLatency", percentile, "/ 1000", label=shown.label(percentile), names=names
        )
    if overhead:
        label = shown.label("SageMaker's overhead, average")
        rows += shown.changed(
            "OverheadLatency", "Average", "/ 1000", label=label, names=("overhead_us", "overhead")
        )
    return Graph(title="Latency of the model, ms", rows=rows, unit="ms", lines=lines)


def failed_share(shown: Shown, *, queued: bool = False) -> Graph:
    """The metrics are 0 or 1 for each request, so their averages are shares."""
    rows: list[Row] = []
    for number, (metric, label) in enumerate(_errors(queued)):
        names = (f"share{number}", f"percent{number}")
        rows += shown.changed(metric, "Average", "* 100", label=shown.label(label), names=names)
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
