"""Our server with an engine that answers with a constant row at once: no tokenizer, no network.

The server's own environment variables set it, and it needs no archive.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence

import numpy as np
import uvloop

from benchmarks.manifest import embedder_manifest
from container.server.app import serve_model
from container.server.data_plane.model import PLATFORMS, Model, model_signature
from container.server.engines.engine import Costs, LinearCosts
from container.server.engines.tokens import Tokens
from container.server.settings import Settings, process_settings
from container.server.telemetry.failure_log import FailureLog, stderr
from container.server.types import Arrays, Encoded
from onboarding.manifest import ProfileRecord

WIDTH, MAX_ROWS = int(os.environ.get("ECHO_WIDTH", "384")), 64
ROW = Tokens(np.arange(16, dtype=np.int32))
ANSWERS = np.repeat(np.random.default_rng(0).random((1, WIDTH), dtype=np.float32), MAX_ROWS, axis=0)
PROFILE = ProfileRecord(batch=(1, 8, MAX_ROWS), sequence=(1, 16, 128))
MANIFEST = embedder_manifest("echo", width=WIDTH, profile=PROFILE)


class EchoEncoder:
    """The same tokens for every text."""

    def encode(self, texts: Sequence[str]) -> Encoded:
        """Return a row per text."""
        return Encoded([ROW] * len(texts), 0)

    def cost(self, texts: Sequence[str]) -> int:
        """Return 0: nothing is tokenized."""
        return 0


class EchoEngine:
    """The same answer for every row."""

    slots, max_rows, inline_rows = 1, MAX_ROWS, MAX_ROWS
    sequence_buckets: tuple[int, ...] | None = None

    def prepare(self, rows: Sequence[Tokens]) -> int:
        """Return the number of rows."""
        return len(rows)

    def run(self, prepared: int, slot: int) -> Arrays:
        """Return a constant row for each."""
        return (ANSWERS[:prepared],)

    def warm_up(self) -> Costs:
        """Time the largest batch, as engines do."""
        begin = time.perf_counter()
        self.run(MAX_ROWS, 0)
        return LinearCosts(fixed_seconds=time.perf_counter() - begin, seconds_per_token=0.0)

    def warm_up_inline(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


def echo_model() -> Model:
    """Return the echo as the server's model."""
    return Model(
        signature=model_signature(MANIFEST),
        platform=PLATFORMS["onnxruntime"],
        encoder=EchoEncoder(),
        probe=[ROW],
        max_tokens=MAX_ROWS * len(ROW),
        load=EchoEngine,
    )


def serve(settings: Settings) -> None:
    """Serve until a signal."""
    log = FailureLog(stderr, model=MANIFEST.model)
    listener = socket.create_server((settings.address, settings.port), backlog=2048)
    uvloop.run(serve_model(settings, echo_model(), listener, log=log, say=print))
    log.close()


if __name__ == "__main__":
    serve(process_settings())
