"""What the server counts, and how Prometheus reads it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import HistogramMetricFamily

from container.server.batching.batch import BatchObserver, Drop
from container.server.telemetry.failure_log import FailureLog

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (*(float(f"{step}e{power}") for power in range(-5, 1) for step in (1, 2, 5)), 10, 30, 60)
"""Bounds from 10 microseconds to a request's longest time."""
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
STAGES = ("decode", "tokenize", "wait", "encode")
"""Of an inference request; `wait` is for queue and engine."""
INFER = "infer"
disable_created_metrics()


class Observations:
    """One series of a histogram; not locked, for it is observed on the event loop only."""

    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds, self.counts, self.total = bounds, [0] * (len(bounds) + 1), 0.0

    def observe(self, value: float) -> None:
        """Count a value in the bucket of the least bound that is not below it."""
        self.counts[bisect_left(self._bounds, value)] += 1
        self.total += value


class Histogram:
    """A histogram that gathers its observations, and hands them over when metrics are read.

    An observation takes 0.2 microseconds, one of prometheus_client's own histogram 1.3: it was 8 of
    the 240 microseconds that the smallest text model takes for a request.
    """

    def __init__(
        self,
        name: str,
        documentation: str,
        labels: Sequence[str] = (),
        *,
        bounds: Sequence[float],
        registry: CollectorRegistry,
    ) -> None:
        self._name, self._documentation, self._labels = name, documentation, labels
        self._bounds = bounds
        self._series: dict[tuple[str, ...], Observations] = {}
        registry.register(self)

    def labels(self, *values: str) -> Observations:
        """Return the series of these labels; a frequent caller keeps it."""
        return self._series.setdefault(values, Observations(self._bounds))

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """Yield what prometheus_client writes."""
        family = HistogramMetricFamily(self._name, self._documentation, labels=self._labels)
        bounds = (*(f"{bound:g}" for bound in self._bounds), "+Inf")
        for values, series in self._series.items():
            counts = accumulate(map(float, series.counts))
            family.add_metric(values, list(zip(bounds, counts, strict=True)), series.total)
        yield family


class ServerMetrics(BatchObserver):
    """The metrics of one server and its model, in a registry of its own; of one event loop.

    What every batch and every request updates is looked up once.
    """

    def __init__(self, model: str, *, log: FailureLog | None = None) -> None:
        """`log` gets a line for every batch on which the engine fails."""
        self._model, self._log = model, log
        self._registry = registry = CollectorRegistry(auto_describe=False)
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        seconds = partial(Histogram, registry=registry, bounds=SECONDS)
        rows = partial(Histogram, registry=registry, bounds=ROWS)
        labels = ("model",)
        self._batch_rows = rows("roundhouse_batch_rows", "Rows of a batch.", labels).labels(model)
        self.connections = gauge("roundhouse_connections", "Open HTTP connections.")
        self._dropped_rows = counter(
            "roundhouse_dropped_rows", "Rows without an answer.", ("model", "reason")
        )
        self._engine_failures = counter(
            "roundhouse_engine_failures", "Batches on which the engine failed.", labels
        ).labels(model)
        self._engine_seconds = seconds(
            "roundhouse_engine_seconds", "Seconds of a batch.", labels
        ).labels(model)
        self.models_loaded = gauge("roundhouse_models_loaded", "Models that would answer now.")
        self._queue_rows = gauge("roundhouse_queue_rows", "Rows that no batch holds yet.", labels)
        self._queue_seconds = seconds(
            "roundhouse_queue_seconds",
            "Seconds that an answered request's last row waited.",
            labels,
        ).labels(model)
        self._request_seconds = seconds(
            "roundhouse_request_seconds", "Seconds of an inference request, answered or not."
        ).labels()
        self._requests = counter(
            "roundhouse_requests", "HTTP requests, by kind of path.", ("path", "model", "status")
        )
        stage_seconds = seconds(
            "roundhouse_stage_seconds",
            "Seconds of an inference request's stages; wait: for queue, engine and the way "
            "to them.",
            ("stage",),
        )
        self._stages = {stage: stage_seconds.labels(stage) for stage in STAGES}
        tokens = counter(
            "roundhouse_tokens", "Tokens that the engine ran: real, or padding.", ("model", "kind")
        )
        self._real, self._padding = tokens.labels(model, "real"), tokens.labels(model, "padding")
        self._truncated_texts = counter(
            "roundhouse_truncated_texts", "Texts cut to the engine's longest sequence.", labels
        )
        self._request_counters: dict[tuple[str, int], Counter] = {}

    def batch_ran(
        self, *, rows: int, tokens: int, padded_tokens: int, engine_seconds: float
    ) -> None:
        self._batch_rows.observe(rows)
        self._real.inc(tokens)
        if padded_tokens > tokens:
            self._padding.inc(padded_tokens - tokens)
        self._engine_seconds.observe(engine_seconds)

    def request_over(self, *, queue_seconds: float) -> None:
        self._queue_seconds.observe(queue_seconds)

    def record_drop(self, *, reason: Drop, rows: int) -> None:
        self._dropped_rows.labels(self._model, reason).inc(rows)

    def engine_failed(self, *, fault: Exception, rows: int) -> None:
        self._engine_failures.inc()
        if self._log is not None:
            self._log.report("engine_failed", fault, stage="engine", rows=rows)

    def watch_queue(self, waiting: Callable[[], int]) -> None:
        """Read the queue's length whenever metrics are read."""
        self._queue_rows.labels(self._model).set_function(waiting)

    def count_truncated(self) -> Callable[[int], object]:
        """Return what counts the truncated texts of a model of texts."""
        count: Callable[[int], object] = self._truncated_texts.labels(self._model).inc
        return count

    def record_request(
        self, path_kind: str, status: int, seconds: float, stages: Mapping[str, float]
    ) -> None:
        """Record an HTTP request that was answered, or whose client left.

        `path_kind` is infer, health, metrics or elsewhere; `stages` has the seconds of STAGES, as
        far as the request got.
        """
        counter = self._request_counters.get((path_kind, status))
        if counter is None:
            counter = self._requests.labels(path_kind, self._model, status)
            self._request_counters[path_kind, status] = counter
        counter.inc()
        if path_kind == INFER:
            self._request_seconds.observe(seconds)
            for stage, taken in stages.items():
                self._stages[stage].observe(taken)

    def exposition(self) -> bytes:
        """Return the metrics as Prometheus reads them, of content type CONTENT_TYPE."""
        text: bytes = generate_latest(self._registry)
        return text
