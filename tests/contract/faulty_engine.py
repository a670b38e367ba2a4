"""The Python server before an engine that fails on demand.

`python -m tests.contract.faulty_engine serve`. All but the engine's faults is the server's own.
Files in the folder FAULTS are the demands.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from container.archive import EngineArchive
from container.server.app import main
from container.server.engines.engine import Costs, Engine, EngineOutOfMemory
from container.server.engines.loading import load_engine
from container.server.process import end
from container.server.settings import Settings
from container.server.types import Arrays
from tests.contract.engine_faults import (
    FAILS,
    HOLDS,
    LARGE,
    LOADS,
    NO_MEMORY_TO_RUN,
    NO_MEMORY_TO_WARM,
    POISON,
    TAKEN,
)

FAULTS = Path(os.environ["FAULTS"])
ALLOCATION = "Failed to allocate memory for requested buffer of size 1073741824"


class FaultyEngine:
    """An engine with faults, never on the event loop, which goes on while a batch is held."""

    inline_rows = 0

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.slots, self.max_rows = engine.slots, engine.max_rows
        self.sequence_buckets = engine.sequence_buckets

    def prepare(self, rows: Sequence[Any]) -> tuple[set[int], Any]:
        """The lengths of the rows, and the engine's batch."""
        return {len(row) for row in rows}, self._engine.prepare(rows)

    def run(self, prepared: tuple[set[int], Any], slot: int) -> Arrays:
        lengths, batch = prepared
        (FAULTS / TAKEN).touch()
        _wait_while(HOLDS)
        if LARGE in lengths and _is_on(NO_MEMORY_TO_RUN):
            raise EngineOutOfMemory(ALLOCATION)
        if POISON in lengths or _is_on(FAILS):
            raise RuntimeError("CUDA failure 700: an illegal memory access was encountered")
        return self._engine.run(batch, slot)

    def warm_up(self) -> Costs:
        if _is_on(NO_MEMORY_TO_WARM):
            raise EngineOutOfMemory(ALLOCATION)
        return self._engine.warm_up()

    def warm_up_inline(self) -> None: ...


def load_faulty_engine(archive: EngineArchive, settings: Settings) -> Engine:
    """The archive's engine, loaded when nothing holds it up."""
    (FAULTS / TAKEN).touch()
    _wait_while(LOADS)
    return FaultyEngine(
        load_engine(archive, slots=settings.slots, threads=settings.threads, cores=1)
    )


def _is_on(fault: str) -> bool:
    return (FAULTS / fault).exists()


def _wait_while(fault: str) -> None:
    while _is_on(fault):
        threading.Event().wait(0.005)


if __name__ == "__main__":
    end(main(sys.argv[1:], load_faulty_engine))
