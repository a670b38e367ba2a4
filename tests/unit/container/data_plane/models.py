"""Models whose engines, memory and faults a test has in its hands."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from container.archive import ArchiveRefused, EngineArchive
from container.server.batching.batch import Limits
from container.server.batching.batcher import Batcher
from container.server.data_plane.model import model_signature
from container.server.data_plane.multi_model import LoadedModels
from container.server.data_plane.plane import DataPlane
from container.server.engines.engine import LinearCosts
from container.server.engines.tokens import Tokens
from container.server.telemetry.failure_log import FailureLog
from onboarding.manifest import Manifest
from tests.fixtures.tiny_embedder.archive import write_archive

ROWS = [Tokens(np.arange(3, dtype=np.int32))]


PARTS = ("archive", "free memory", "tokenizer", "engine", "warm-up", "inline warm-up", "batcher")
"""The parts of a load, in order."""


class Engine:
    slots, max_rows, sequence_buckets = 1, 8, None
    inline_rows = 0

    def __init__(self, fail: Callable[[str], object]) -> None:
        self.go_on, self.running, self.closed = threading.Event(), threading.Event(), False
        self.go_on.set()
        self.fail = fail

    def prepare(self, rows):
        return list(rows)

    def run(self, prepared, slot):
        self.running.set()
        self.go_on.wait(20)
        assert not self.closed
        return (np.array([[len(row)] for row in prepared], np.float32),)

    def warm_up(self):
        self.fail("warm-up")
        self.run(ROWS, 0)
        return LinearCosts()

    def warm_up_inline(self) -> None:
        self.fail("inline warm-up")

    def close(self):
        self.closed = True


class Bench:
    """Models whose engines, memory and faults the test has in its hands."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.engines: list[Engine] = []
        self.free: float | None = 100.0
        self.faults: dict[str, BaseException] = {}
        """By the part of a load that raises it."""
        self.opening, self.may_open = threading.Event(), threading.Event()
        self.may_open.set()
        self.lines: list[bytes] = []
        self.gone: list[str] = []
        self.log = FailureLog(self.lines.append)
        self.models = LoadedModels(
            verify=self.verify,
            load_engine=self.open,
            plane=self.plane,
            backend=self.backend,
            free_mib=self.free_mib,
            log=self.log,
            unloaded=self.gone.append,
        )

    def archive(self, name: str, mib: float = 10.0) -> str:
        write_archive(self.root / name, host_memory_mib=mib)
        return str(self.root / name)

    def fail(self, part: str) -> None:
        if part in self.faults:
            raise self.faults[part]

    def free_mib(self) -> float | None:
        self.fail("free memory")
        return self.free

    def plane(self, archive: EngineArchive) -> DataPlane:
        self.fail("tokenizer")
        return DataPlane(
            signature=model_signature(archive.manifest),
            encoder=None,
            max_request_rows=9,
            deadline_seconds=20,
        )

    def verify(self, root: Path) -> EngineArchive:
        self.fail("archive")
        if "refused" in root.name:
            raise ArchiveRefused("Refused: it is foreign.")
        manifest = Manifest.from_bytes((root / "manifest.json").read_bytes())
        return EngineArchive(root=root, manifest=manifest)

    def open(self, archive: EngineArchive) -> Engine:
        self.opening.set()
        self.may_open.wait(20)
        self.fail("engine")
        self.engines.append(Engine(self.fail))
        return self.engines[-1]

    def backend(self, name: str, engine: Engine, costs: LinearCosts, plane: DataPlane) -> Batcher:
        self.fail("batcher")
        limits = Limits(max_tokens=100, queue_rows=50)
        return Batcher(engine=engine, probe=ROWS, limits=limits, costs=costs)

    async def ask(self, name: str) -> Any:
        return await (await self.models.plane(name).submit(ROWS))
