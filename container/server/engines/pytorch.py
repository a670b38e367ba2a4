"""PyTorch programs as runners, on the CPU and on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from container.pytorch.program import NUMPY_TYPES, DeviceName, Program
from container.server.engines.engine import memory_of
from container.server.engines.shaping import Part, Tensor
from container.server.types import Array


class ProgramRunner:
    """A program. Slots share its weights, and a GPU's default stream."""

    def __init__(
        self,
        path: Path,
        *,
        slots: int,
        is_compiled: bool = False,
        device: DeviceName = "cuda",
        threads: int | None = None,
        load: Callable[..., Any] = Program,
    ) -> None:
        """`threads` are one run's on the CPU. Raises EngineOutOfMemory, and what `load` raises."""
        self.slots, self._name = slots, path.name
        self._memory = "memory" if device == "cpu" else "GPU memory"
        with memory_of(path.name, self._memory):
            self._program = load(path, device=device, is_compiled=is_compiled, threads=threads)
        self.inputs = {
            item.name: Tensor(dtype=NUMPY_TYPES[item.datatype], rank=item.rank)
            for item in self._program.signature.inputs
        }
        self.outputs = self._program.signature.outputs

    def run(self, part: Part, slot: int) -> Mapping[str, Array]:
        """Return the part's own rows of every output. Raises EngineOutOfMemory, RuntimeError."""
        feed = {
            name: np.zeros(part.shapes[name], self.inputs[name].dtype) if values is None else values
            for name, values in part.feed.items()
        }
        with memory_of(self._name, self._memory):
            outputs = self._program.run(feed)
        return {name: array[: part.rows] for name, array in outputs.items()}

    def run_once(self, part: Part) -> None:
        """Run a part of a size that may not come again."""
        self.run(part, 0)
