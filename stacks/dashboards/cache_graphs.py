"""Graphs of a multi-model endpoint's memory as a cache of models."""

from __future__ import annotations

from stacks.dashboards.rows import Row, Shown
from stacks.dashboards.widget import Graph

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
    rows = shown.changed(
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
        rows += shown.changed(
            metric, "Average", "/ 1000", label=label, names=(f"wait{number}", f"ms{number}")
        )
    return Graph(title="Loading, ms on average", rows=rows, unit="ms")
