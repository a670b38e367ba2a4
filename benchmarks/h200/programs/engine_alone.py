"""`python -m benchmarks.h200.programs.engine_alone ARCHIVE TEXTS PORT`.

The server's own engine without a server.

It opens an archive as the server does, prepares the texts' batches once, and measures when asked:
POST /rate or /lone with {"seconds": s}. /rate runs every slot at once, on batches sorted by length
from windows of rows; /lone runs one row a time. Slot 0 is this program's one thread, in which the
engine warmed up: CUDA graphs belong to their thread.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import threading
import time
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

from container.archive import verify_archive
from container.server.engines.engine import longest_sequence
from container.server.engines.loading import load_engine, running
from container.server.engines.tokens import TextEncoder, Tokens

WINDOW = 512
"""Rows that are sorted together: no fewer than any load here has waiting."""


class Alone:
    """An engine and everything it may be asked to run."""

    def __init__(self, archive: Path, texts: Sequence[str]) -> None:
        found = verify_archive(archive, running=running(), manifest_sha256=None)
        self._engine = load_engine(
            found, slots=None, threads=None, cores=len(os.sched_getaffinity(0))
        )
        self._engine.warm_up()
        assert found.tokenizer is not None
        encoder = TextEncoder(
            found.tokenizer, max_tokens=longest_sequence(found.manifest.optimization_profiles)
        )
        rows = encoder.encode(texts).rows
        self._single = [self._engine.prepare([row]) for row in rows]
        self._batches = [
            (len(batch), self._engine.prepare(batch))
            for batch in batches(rows, self._engine.max_rows)
        ]

    def rate(self, seconds: float) -> dict[str, float]:
        """Texts per second of all slots."""
        slots = self._engine.slots
        gate, listed = threading.Barrier(slots), [0.0] * slots
        threads = [
            threading.Thread(target=self._slot, args=(slot, seconds, gate, listed))
            for slot in range(1, slots)
        ]
        for thread in threads:
            thread.start()
        self._slot(0, seconds, gate, listed)
        for thread in threads:
            thread.join()
        return {"rate": sum(listed), "slots": slots, "rows": self._engine.max_rows}

    def lone(self, seconds: float) -> dict[str, float]:
        """Median milliseconds of one row."""
        taken: list[float] = []
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            begin = time.perf_counter()
            self._engine.run(self._single[len(taken) % len(self._single)], 0)
            taken.append(1e3 * (time.perf_counter() - begin))
        return {"p50_ms": statistics.median(taken), "calls": len(taken)}

    def _slot(
        self, slot: int, seconds: float, gate: threading.Barrier, listed: list[float]
    ) -> None:
        gate.wait()
        done, turn, begin = 0, slot, time.perf_counter()
        while time.perf_counter() - begin < seconds:
            rows, prepared = self._batches[turn % len(self._batches)]
            self._engine.run(prepared, slot)
            done, turn = done + rows, turn + self._engine.slots
        listed[slot] = done / (time.perf_counter() - begin)


def batches(rows: Sequence[Tokens], most: int) -> list[Sequence[Tokens]]:
    """Full batches of rows of like length, window by window, the mix kept whole."""
    found: list[Sequence[Tokens]] = []
    for start in range(0, len(rows), WINDOW):
        window = sorted(rows[start : start + WINDOW], key=len)
        found += [window[place : place + most] for place in range(0, len(window), most)]
    return found


def serve(alone: Alone, port: int) -> None:
    """Answers until it is ended."""

    class Application(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            """Ready."""
            self._warn({})

        def do_POST(self) -> None:
            """Measures now."""
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            measure = alone.rate if self.path == "/rate" else alone.lone
            self._warn(measure(float(request["seconds"])))

        def log_message(self, format: str, *arguments: Any) -> None:
            """Says nothing."""

        def _warn(self, found: dict[str, float]) -> None:
            body = json.dumps(found).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    HTTPServer(("127.0.0.1", port), Application).serve_forever()


if __name__ == "__main__":
    archive, file, listen = sys.argv[1:]
    serve(Alone(Path(archive), Path(file).read_text(encoding="utf-8").splitlines()), int(listen))
