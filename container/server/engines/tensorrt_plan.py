"""Plans in TensorRT 10 and 11.

Page-locked host memory, a queue and contexts per slot, a CUDA graph per slot and bucket. Plans of
TensorRT 10.6 run in it on an H100 (tests/gpu); every name that it touches is in the real bindings
of 10.16 and 11.4 (tests/bindings).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from container.server.engines.engine import memory_of
from container.server.engines.shaping import Part, Shapes, Tensor
from container.server.types import Array
from container.tensorrt.bindings import CudaRuntime, TensorRT
from container.tensorrt.context import Slot
from container.tensorrt.device import Device
from container.tensorrt.faults import DeviceFault
from container.tensorrt.plan import Plan, nearest


class PlanRunner:
    """A plan and its slots, which share the weights and nothing else."""

    def __init__(
        self,
        path: Path,
        *,
        trt: TensorRT,
        cuda: CudaRuntime,
        slots: int,
        host_code: bool = False,
        plugins: Sequence[Path] = (),
        warn: Callable[[str], None] = print,
    ) -> None:
        """`host_code` lets a version-compatible plan run the code inside it.

        `plugins` are libraries of custom operators. Raises EngineOutOfMemory and DeviceFault.
        """
        self.slots = slots
        self._path, self._cuda, self._warn = path, cuda, warn
        with self._memory():
            # CUDA first, which says why it does not start; TensorRT says only that it does not.
            Device(cuda).close()
            self._plan = Plan(path, trt=trt, host_code=host_code, plugins=plugins)
        self.inputs = {
            name: Tensor(
                dtype=self._plan.types[name], rank=len(self._plan.profiles[0][name].largest)
            )
            for name in self._plan.inputs
        }
        self.outputs = self._plan.outputs
        self._slots: list[Slot] = []
        self._has_warned = False

    def takes(self, shapes: Shapes) -> bool:
        """True when an optimization profile takes the shapes."""
        return nearest(shapes, self._plan.profiles) is not None

    def open(self, declared: Sequence[Shapes]) -> None:
        """Take every slot's memory; `close` gives it back, also when one does not fit.

        Raises EngineOutOfMemory, DeviceFault.
        """
        with self._memory():
            for _ in range(self.slots):
                self._slots.append(Slot(self._plan, self._cuda, declared, warn=self._warn_once))

    def run(self, part: Part, slot: int) -> Mapping[str, Array]:
        """Return the part's own rows of every output. Raises EngineOutOfMemory and DeviceFault."""
        with self._memory():
            return self._slots[slot].run(part.feed, part.shapes, part.rows)

    def close(self) -> None:
        """Free graphs, contexts, memory and weights, as far as the GPU still can.

        Raises DeviceFault.
        """
        faults: list[DeviceFault] = []
        while self._slots:
            try:
                self._slots.pop().close()
            except DeviceFault as fault:
                faults.append(fault)
        self._plan.close()
        if faults:
            raise faults[0]

    def _warn_once(self, sentence: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            self._warn(sentence)

    def _memory(self) -> memory_of:
        return memory_of(self._path.name, "GPU memory")
