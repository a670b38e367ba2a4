"""Our server with an engine that answers a constant row at once.

Its HTTP, codec and batcher, no tokenizer and no network.

The server's own environment variables set it, and it needs no archive. With arguments it is one of
several HTTP processes.
"""

from __future__ import annotations

import signal
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import uvloop

from container.server.app import serve_one_process, serve_several_processes
from container.server.data_plane.model import PLATFORMS, Model, model_signature
from container.server.engines.engine import Costs, LinearCosts
from container.server.engines.tokens import Tokens
from container.server.processes.http_worker import HttpWorker
from container.server.processes.supervisor import WorkerSpec
from container.server.settings import Settings, process_environment, process_settings
from container.server.telemetry.failure_log import FailureLog, stderr
from container.server.types import Arrays, Encoded
from onboarding.manifest import (
    BuilderRecord,
    Manifest,
    ProfileRecord,
    RuntimeIdentity,
    TensorRecord,
)

WIDTH, MAX_ROWS = 384, 64
ROW = Tokens(np.arange(16, dtype=np.int32))
ANSWERS = np.repeat(np.random.default_rng(0).random((1, WIDTH), dtype=np.float32), MAX_ROWS, axis=0)
MANIFEST = Manifest.model_validate(
    {
        "model": "echo",
        "task": "text-embedding",
        "engine_key": "0" * 20,
        "network_keys": {},
        "platform": "none",
        "runtime": RuntimeIdentity(name="onnxruntime", version="0"),
        "compute_capability": "cpu",
        "requested_precision": "fp32",
        "precision": "fp32",
        "decision": "nothing is computed",
        "engine_file": "none",
        "inputs": (TensorRecord(name="text", datatype="BYTES", shape=(-1, 1)),),
        "outputs": (TensorRecord(name="embedding", datatype="FP32", shape=(-1, WIDTH)),),
        "tokenizer_file": "none",
        "optimization_profiles": (ProfileRecord(batch=(1, 8, MAX_ROWS), sequence=(1, 16, 128)),),
        "max_batch_size": MAX_ROWS,
        "files": {},
        "accuracy": (),
        "compile_checks": (),
        "benchmark": (),
        "load_seconds": 0.0,
        "host_memory_mib": 0.0,
        "builder": BuilderRecord(machine="x86_64", built_at="2026-01-01T00:00:00Z"),
    }
)


class EchoEncoder:
    """The same tokens for every text."""

    def encode(self, texts: Sequence[str]) -> Encoded:
        """A row per text."""
        return Encoded([ROW] * len(texts), 0)

    def cost(self, texts: Sequence[str]) -> int:
        """Nothing."""
        return 0


class EchoEngine:
    """The same answer for every row."""

    slots, max_rows, inline_rows = 1, MAX_ROWS, MAX_ROWS
    sequence_buckets: tuple[int, ...] | None = None

    def prepare(self, rows: Sequence[Tokens]) -> int:
        """How many there are."""
        return len(rows)

    def run(self, prepared: int, slot: int) -> Arrays:
        """A constant row for each."""
        return (ANSWERS[:prepared],)

    def warm_up(self) -> Costs:
        """Nothing is cold; times the largest batch, as engines do."""
        begin = time.perf_counter()
        self.run(MAX_ROWS, 0)
        return LinearCosts(fixed_seconds=time.perf_counter() - begin, seconds_per_token=0.0)

    def warm_up_inline(self) -> None:
        """Nothing is cold."""

    def close(self) -> None:
        """Nothing is held."""


def model(settings: Settings) -> Model:
    """The echo as the server sees it."""
    return Model(
        signature=model_signature(MANIFEST),
        platform=PLATFORMS[MANIFEST.runtime.name],
        encoder=EchoEncoder(),
        probe=[ROW],
        max_tokens=MAX_ROWS * len(ROW),
        load=EchoEngine,
    )


def serve(settings: Settings) -> None:
    """Until a signal."""
    log = FailureLog(stderr, model=MANIFEST.model)
    listener = socket.create_server((settings.address, settings.port), backlog=2048)
    if settings.http_processes == 1:
        uvloop.run(serve_one_process(settings, model(settings), listener, log=log, say=print))
    else:
        command = (sys.executable, str(Path(__file__).resolve()))
        workers = WorkerSpec(
            count=settings.http_processes, environment=process_environment(), command=command
        )
        uvloop.run(
            serve_several_processes(
                settings, model(settings), listener, workers, log=log, say=print
            )
        )
    log.close()


def worker(settings: Settings, end: socket.socket, worker_socket: socket.socket) -> None:
    """One HTTP process."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    log = FailureLog(stderr, model=MANIFEST.model)

    async def serving() -> int:
        return await HttpWorker(settings=settings, model=model(settings), log=log).serve(
            end, worker_socket
        )

    uvloop.run(serving())


if __name__ == "__main__":
    if len(sys.argv) > 1:
        worker(process_settings(), *(socket.socket(fileno=int(number)) for number in sys.argv[1:]))
    else:
        serve(process_settings())
