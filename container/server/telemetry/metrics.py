"""What the server counts, and how Prometheus reads it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import accumulate
from typing import Literal, NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from container.server.batching.batch import BatchObserver, Drop
from container.server.telemetry.failure_log import FailureLog
from container.server.telemetry.metric_values import (
    Counter,
    Histogram,
    MetricValues,
    parse_snapshot,
)

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (*(float(f"{step}e{power}") for power in range(-5, 1) for step in (1, 2, 5)), 10, 30, 60)
"""Bounds from 10 microseconds to a request's longest time."""
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
STAGES = ("decode", "tokenize", "wait", "encode")
"""Of an inference request; `wait` is for queue and engine."""
INFER, HEALTH = "infer", "health"


class Family(NamedTuple):
    """One metric; a histogram has bounds."""

    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()


FAMILIES = {
    "roundhouse_requests": Family(
        "counter", "HTTP requests, by kind of path.", ("path", "model", "status")
    ),
    "roundhouse_request_seconds": Family(
        "histogram", "Seconds of an inference request, answered or not.", bounds=SECONDS
    ),
    "roundhouse_stage_seconds": Family(
        "histogram",
        "Seconds of an inference request's stages; wait: for queue, engine and the way to them.",
        ("stage",),
        SECONDS,
    ),
    "roundhouse_queue_seconds": Family(
        "histogram", "Seconds that an answered request's last row waited.", ("model",), SECONDS
    ),
    "roundhouse_engine_seconds": Family("histogram", "Seconds of a batch.", ("model",), SECONDS),
    "roundhouse_batch_rows": Family("histogram", "Rows of a batch.", ("model",), ROWS),
    "roundhouse_tokens": Family(
        "counter", "Tokens that the engine ran: real, or padding.", ("model", "kind")
    ),
    "roundhouse_truncated_texts": Family(
        "counter", "Texts cut to the engine's longest sequence.", ("model",)
    ),
    "roundhouse_dropped_rows": Family("counter", "Rows without an answer.", ("model", "reason")),
    "roundhouse_engine_failures": Family(
        "counter", "Batches on which the engine failed.", ("model",)
    ),
    "roundhouse_queue_rows": Family("gauge", "Rows that no batch holds yet.", ("model",)),
    "roundhouse_models_loaded": Family("gauge", "Models that would answer now."),
    "roundhouse_connections": Family("gauge", "Open HTTP connections."),
    "roundhouse_http_processes": Family("gauge", "HTTP processes that take connections."),
    "roundhouse_http_process_deaths": Family("counter", "HTTP processes that ended unasked."),
}
GAUGES = frozenset(name for name, family in FAMILIES.items() if family.kind == "gauge")
"""What a process that has ended no longer has."""


class BatchMetrics(BatchObserver):
    """The metrics of one model's batches; each value is looked up once."""

    def __init__(
        self, metric_values: MetricValues, model: str, *, log: FailureLog | None = None
    ) -> None:
        """`log` gets a line for every batch on which the engine fails."""
        self._metric_values, self._model, self._log = metric_values, model, log
        self._rows = histogram(metric_values, "roundhouse_batch_rows", model)
        self._engine = histogram(metric_values, "roundhouse_engine_seconds", model)
        self._queue = histogram(metric_values, "roundhouse_queue_seconds", model)
        self._real = counter(metric_values, "roundhouse_tokens", model, "real")
        self._padding = counter(metric_values, "roundhouse_tokens", model, "padding")
        self._failures = counter(metric_values, "roundhouse_engine_failures", model)
        self._dropped: dict[Drop, Counter] = {}

    def batch_ran(
        self, *, rows: int, tokens: int, padded_tokens: int, engine_seconds: float
    ) -> None:
        self._rows.observe(rows)
        self._real.value += tokens
        self._padding.value += padded_tokens - tokens
        self._engine.observe(engine_seconds)

    def request_over(self, *, queue_seconds: float) -> None:
        self._queue.observe(queue_seconds)

    def record_drop(self, *, reason: Drop, rows: int) -> None:
        dropped = self._dropped.get(reason)
        if dropped is None:
            dropped = self._dropped[reason] = counter(
                self._metric_values, "roundhouse_dropped_rows", self._model, reason
            )
        dropped.value += rows

    def engine_failed(self, *, fault: Exception, rows: int) -> None:
        self._failures.value += 1
        if self._log is not None:
            self._log.report("engine_failed", fault, stage="engine", model=self._model, rows=rows)

    def watch_queue(self, waiting: Callable[[], int]) -> None:
        """Read the queue's length at every snapshot."""
        gauge(self._metric_values, "roundhouse_queue_rows", waiting, self._model)


class RequestMetrics:
    """The metrics of one process' HTTP requests."""

    def __init__(
        self, metric_values: MetricValues, *, model: str = "", log: FailureLog | None = None
    ) -> None:
        """`model` is the only one; `log` gets a line for every request that cannot be answered."""
        self._metric_values, self._model, self._log = metric_values, model, log
        self._seconds = histogram(metric_values, "roundhouse_request_seconds")
        self._stages = {
            stage: histogram(metric_values, "roundhouse_stage_seconds", stage) for stage in STAGES
        }
        self._requests: dict[tuple[str, str, int], Counter] = {}
        self._forgets = metric_values.forgets

    def request_over(
        self,
        path_kind: str,
        status: int,
        seconds: float,
        stages: Mapping[str, float],
        *,
        model: str | None = None,
    ) -> None:
        """Record a request that was answered, or whose client left.

        `path_kind` is infer, health, metadata, metrics, models, model or elsewhere; `stages` has
        the seconds of STAGES, as far as the request got; `model` is the name in its path, which may
        be no model's.
        """
        # Only a request that was decoded has found its model: other names are whatever clients
        # write.
        known = model if model is not None and "decode" in stages else self._model
        if self._forgets != self._metric_values.forgets:
            self._forgets = self._metric_values.forgets
            self._requests.clear()
        requests = self._requests.get((path_kind, known, status))
        if requests is None:
            requests = self._requests[path_kind, known, status] = counter(
                self._metric_values, "roundhouse_requests", path_kind, known, str(status)
            )
        requests.value += 1
        if path_kind == INFER:
            self._seconds.observe(seconds)
            for stage, taken in stages.items():
                self._stages[stage].observe(taken)
        if status in (503, 507) and path_kind != HEALTH and self._log is not None:
            self._log.report("request_unanswered", stage="http", level="warning", status=status)


def counter(metric_values: MetricValues, name: str, *labels: str) -> Counter:
    """Return a counter of a known family."""
    _refuse_unknown(name, "counter", labels)
    return metric_values.counter(name, *labels)


def histogram(metric_values: MetricValues, name: str, *labels: str) -> Histogram:
    """Return a histogram of a known family."""
    _refuse_unknown(name, "histogram", labels)
    return metric_values.histogram(name, FAMILIES[name].bounds, *labels)


def gauge(metric_values: MetricValues, name: str, read: Callable[[], float], *labels: str) -> None:
    """Register a gauge of a known family."""
    _refuse_unknown(name, "gauge", labels)
    metric_values.gauge(name, read, *labels)


def forget_model(metric_values: MetricValues, model: str) -> None:
    """Drop the series of an unloaded model, so that they do not accumulate.

    Loaded again, a model's counters start at zero, which Prometheus treats as a reset.
    """

    def is_gone(name: str, labels: tuple[str, ...]) -> bool:
        return ("model", model) in zip(FAMILIES[name].labels, labels, strict=True)

    metric_values.forget(is_gone)


def _refuse_unknown(name: str, kind: str, labels: tuple[str, ...]) -> None:
    """Raises KeyError and ValueError for a mistake of ours."""
    family = FAMILIES[name]
    if family.kind != kind or len(family.labels) != len(labels):
        raise ValueError(
            f"{name} is a {family.kind} with labels {family.labels}, not a {kind} with {labels}."
        )


def exposition(snapshot: bytes) -> bytes:
    """Return a snapshot as Prometheus reads it, of content type CONTENT_TYPE."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Snapshot(snapshot))
    text: bytes = generate_latest(registry)
    return text


KINDS = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}


class _Snapshot:
    """Gives prometheus_client the samples of a snapshot."""

    def __init__(self, snapshot: bytes) -> None:
        self._snapshot = snapshot

    def collect(self) -> list[Metric]:
        """Return one metric per family that has samples."""
        metrics: dict[str, Metric] = {}
        for (name, labels), values in sorted(parse_snapshot(self._snapshot).items()):
            family = FAMILIES[name]
            if name not in metrics:
                metrics[name] = KINDS[family.kind](name, family.help, labels=family.labels)
            if family.kind == "histogram":
                bounds = (*(f"{bound:g}" for bound in family.bounds), "+Inf")
                counts = accumulate(map(float, values[:-1]))
                buckets = list(zip(bounds, counts, strict=True))
                metrics[name].add_metric(labels, buckets, values[-1])
            else:
                metrics[name].add_metric(labels, values[0])
        return list(metrics.values())
