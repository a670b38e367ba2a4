"""PyTorch programs in the engines: as a session on the CPU, as a runner on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from container.pytorch.program import NUMPY_TYPES, DeviceName, Program
from container.server.engines.engine import memory_of
from container.server.engines.shaping import Part, Tensor
from container.server.types import Array

TENSOR_TYPES = {"INT32": "tensor(int32)", "INT64": "tensor(int64)", "FP32": "tensor(float)"}


@dataclass(frozen=True, kw_only=True)
class SessionTensor:
    """An input or output as ONNX Runtime describes it."""

    name: str
    type: str = ""
    shape: tuple[None, ...] = ()


class ProgramSession:
    """A program with the methods of an ONNX Runtime session that engines of the CPU call."""

    def __init__(
        self,
        path: Path,
        threads: int,
        *,
        is_compiled: bool = False,
        load: Callable[..., Any] = Program,
    ) -> None:
        """`threads` are one run's. Raises EngineOutOfMemory, and what `load` raises."""
        with memory_of(path.name):
            self._program = load(path, is_compiled=is_compiled, threads=threads)

    def get_inputs(self) -> list[SessionTensor]:
        """Return the inputs in their order."""
        return [
            SessionTensor(
                name=item.name,
                type=TENSOR_TYPES.get(item.datatype, item.datatype),
                shape=(None,) * item.rank,
            )
            for item in self._program.signature.inputs
        ]

    def get_outputs(self) -> list[SessionTensor]:
        """Return the outputs in their order."""
        return [SessionTensor(name=name) for name in self._program.signature.outputs]

    def run(self, names: Sequence[str], feed: Mapping[str, Array], options: Any = None) -> Any:
        """Return the named outputs; `options` of ONNX Runtime mean nothing here."""
        outputs = self._program.run(feed)
        return [outputs[name] for name in names]


class ProgramRunner:
    """A program on a GPU. Slots share its weights and the GPU's default stream."""

    def __init__(
        self,
        path: Path,
        *,
        slots: int,
        is_compiled: bool = False,
        device: DeviceName = "cuda",
        load: Callable[..., Any] = Program,
    ) -> None:
        """`device` is `cpu` in tests alone. Raises EngineOutOfMemory, and what `load` raises."""
        self.slots, self._name = slots, path.name
        with memory_of(path.name, "GPU memory"):
            self._program = load(path, device=device, is_compiled=is_compiled)
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
        with memory_of(self._name, "GPU memory"):
            outputs = self._program.run(feed)
        return {name: array[: part.rows] for name, array in outputs.items()}

    def close(self) -> None:
        """Give the device memory back."""
        self._program.close()
