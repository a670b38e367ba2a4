"""Models whose engines, memory and faults a test has in its hands."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from container.archive import ArchiveRefused, EngineArchive
from container.server.data_plane.model import Model, model_signature
from container.server.data_plane.multi_model import LoadedModels
from container.server.engines.engine import LinearCosts
from container.server.engines.tokens import Tokens
from container.server.settings import Settings
from container.server.telemetry.failure_log import FailureLog
from container.server.telemetry.metrics import ServerMetrics
from onboarding.manifest import Manifest
from tests.fixtures.tiny_embedder.archive import write_archive

ROWS = [Tokens(np.arange(3, dtype=np.int32))]


PARTS = ("archive", "free memory", "tokenizer", "engine", "warm-up", "inline warm-up", "batcher")
"""The parts of a load, in order."""


class Engine:
    slots, sequence_buckets, inline_rows = 1, None, 0

    def __init__(self, fail: Callable[[str], object]) -> None:
        self.go_on, self.running, self.closed = threading.Event(), threading.Event(), False
        self.go_on.set()
        self.fail = fail

    @property
    def max_rows(self):
        """Read by the batcher."""
        self.fail("batcher")
        return 8

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
        self.metrics = ServerMetrics()
        self.log = FailureLog(self.lines.append)
        self.models = LoadedModels(
            verify=self.verify,
            model_of=self.model,
            settings=Settings(deadline_seconds=20),
            metrics=self.metrics,
            log=self.log,
            free_mib=self.free_mib,
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

    def model(self, archive: EngineArchive) -> Model:
        self.fail("tokenizer")
        return Model(
            signature=model_signature(archive.manifest),
            encoder=None,
            probe=ROWS,
            max_tokens=100,
            load=partial(self.open, archive),
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

    async def ask(self, name: str) -> Any:
        return await (await self.models.plane(name).submit(ROWS))
