"""Graphs of an endpoint's variants side by side, as many as there are: found by search, so that one
selector serves all.
"""

from __future__ import annotations

from collections.abc import Sequence

from stacks.alarms.alarm import HOST, INVOCATIONS
from stacks.dashboards.lines import Line
from stacks.dashboards.rows import every_variant
from stacks.dashboards.widget import Graph


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
