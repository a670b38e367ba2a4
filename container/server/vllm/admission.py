"""What is in flight, what may still come in, and what this server counts of both."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    disable_created_metrics,
    generate_latest,
)

from container.server.process import happens_within
from container.server.types import QueueFull, Unavailable

STOPPING = "The container is being stopped; another one answers."
disable_created_metrics()


class FrontMetrics:
    """Counters of refusals and cut streams, and what is in flight."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry(auto_describe=False)
        rejections = Counter(
            "roundhouse_front_rejections",
            "Requests refused because the engine, or this server's memory, was full.",
            ("reason",),
            registry=registry,
        )
        self.full_queue, self.full_memory = map(rejections.labels, ("queue", "memory"))
        self.refused_while_stopping = Counter(
            "roundhouse_front_stopping_rejections",
            "Requests refused because the container was being stopped.",
            registry=registry,
        )
        self.cut_streams = Counter(
            "roundhouse_front_streams_cut",
            "Streams that ended with an error event of this server.",
            registry=registry,
        )
        self.sequences = Gauge(
            "roundhouse_front_sequences", "Answers that are under way.", registry=registry
        )

    def exposition(self) -> bytes:
        """Return the metrics as Prometheus reads them."""
        text: bytes = generate_latest(self._registry)
        return text


class Flight:
    """One request that is being answered; used by the task that answers it."""

    def __init__(self, task: asyncio.Task[object]) -> None:
        self._task = task
        self.sequences = 1
        self.cut_reason = ""
        """Why its answer must end now; empty while it may go on."""

    def cut(self, reason: str) -> None:
        """End its answer: the task's cancellation, with a reason, is an order to say why."""
        self.cut_reason = reason
        self._task.cancel()

    def take_cut(self) -> str:
        """Return the reason of our cancellation, which is over then; empty for others'."""
        if self.cut_reason:
            self._task.uncancel()
        return self.cut_reason


class Admission:
    """Lets in as much as the engine may have at once."""

    def __init__(self, most_sequences: int, metrics: FrontMetrics) -> None:
        self._most, self._metrics = most_sequences, metrics
        self.flights: set[Flight] = set()
        self.sequences = 0
        self.stopping = ""
        """Why nothing more comes in; empty while it may."""
        self._empty = asyncio.Event()
        self._empty.set()
        metrics.sequences.set_function(lambda: self.sequences)

    def refuse_stopping(self) -> None:
        """Raise Unavailable where nothing more comes in."""
        if self.stopping:
            self._metrics.refused_while_stopping.inc()
            raise Unavailable(self.stopping)

    @contextmanager
    def admit(self) -> Iterator[Flight]:
        """Count a request while it is here, as one sequence. Raises Unavailable and QueueFull."""
        self.refuse_stopping()
        task = asyncio.current_task()
        assert task is not None
        flight = Flight(task)
        self._require(1)
        self.flights.add(flight)
        self.sequences += 1
        self._empty.clear()
        try:
            yield flight
        finally:
            self.flights.discard(flight)
            self.sequences -= flight.sequences
            if not self.flights:
                self._empty.set()

    def count(self, flight: Flight, sequences: int) -> None:
        """Count all sequences of a request that was read. Raises QueueFull."""
        self._require(sequences - flight.sequences)
        self.sequences += sequences - flight.sequences
        flight.sequences = sequences

    async def drain(self, seconds: float, last_seconds: float) -> int:
        """Let in nothing more, wait for what is in flight, and return how much had to be cut."""
        self.stopping = STOPPING
        if await happens_within(self._empty, seconds):
            return 0
        left = tuple(self.flights)
        for flight in left:
            flight.cut("The container is being stopped before the answer's end; ask again.")
        await happens_within(self._empty, last_seconds)
        return len(left)

    def _require(self, more: int) -> None:
        if self.sequences + more > self._most:
            self._metrics.full_queue.inc()
            raise QueueFull(
                f"The engine is busy: {self.sequences} of {self._most} answers are under way; try "
                "again."
            )
