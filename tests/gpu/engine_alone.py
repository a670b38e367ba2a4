"""An engine with no server before it, opened as the server opens it.

`rate` runs every slot at once, on batches sorted by length from windows of rows; `lone` runs one
row a time. Slot 0 is the calling thread, in which the engine warmed up: CUDA graphs belong to
their thread.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from container.archive import verify_archive
from container.server.engines.engine import longest_sequence
from container.server.engines.loading import load_engine, running
from container.server.engines.tokens import TextEncoder, Tokens

WINDOW = 512
"""Rows that are sorted together: no fewer than any load here has waiting."""


class EngineAlone:
    """An engine and everything that it runs."""

    def __init__(self, path: Path, texts: Sequence[str]) -> None:
        archive = verify_archive(path, running=running(), manifest_sha256=None)
        cores = len(os.sched_getaffinity(0))
        self._engine = load_engine(archive, slots=None, threads=None, cores=cores)
        self._engine.warm_up()
        assert archive.tokenizer is not None
        longest = longest_sequence(archive.manifest.optimization_profiles)
        rows = TextEncoder(archive.tokenizer, max_tokens=longest).encode(texts).rows
        self._single = [self._engine.prepare([row]) for row in rows]
        self._batches = [
            (len(batch), self._engine.prepare(batch))
            for batch in batches(rows, self._engine.max_rows)
        ]

    def rate(self, seconds: float) -> dict[str, float]:
        """Return the texts per second of all slots."""
        slots = self._engine.slots
        barrier, rates = threading.Barrier(slots), [0.0] * slots
        threads = [
            threading.Thread(target=self._run_slot, args=(slot, seconds, barrier, rates))
            for slot in range(1, slots)
        ]
        for thread in threads:
            thread.start()
        self._run_slot(0, seconds, barrier, rates)
        for thread in threads:
            thread.join()
        return {"rate": sum(rates), "slots": slots, "rows": self._engine.max_rows}

    def lone(self, seconds: float) -> dict[str, float]:
        """Return the median milliseconds of one row."""
        durations: list[float] = []
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            begin = time.perf_counter()
            self._engine.run(self._single[len(durations) % len(self._single)], 0)
            durations.append(1e3 * (time.perf_counter() - begin))
        return {"p50_ms": statistics.median(durations), "calls": len(durations)}

    def _run_slot(
        self, slot: int, seconds: float, barrier: threading.Barrier, rates: list[float]
    ) -> None:
        barrier.wait()
        count, index, begin = 0, slot, time.perf_counter()
        while time.perf_counter() - begin < seconds:
            rows, prepared = self._batches[index % len(self._batches)]
            self._engine.run(prepared, slot)
            count, index = count + rows, index + self._engine.slots
        rates[slot] = count / (time.perf_counter() - begin)


def batches(rows: Sequence[Tokens], most: int) -> list[Sequence[Tokens]]:
    """Return full batches of rows of like length, window by window."""
    result: list[Sequence[Tokens]] = []
    for start in range(0, len(rows), WINDOW):
        window = sorted(rows[start : start + WINDOW], key=len)
        result += [window[first : first + most] for first in range(0, len(window), most)]
    return result
