"""Execution contexts of a plan, their memory and CUDA graphs, and the slots that hold them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from container.tensorrt.bindings import CudaRuntime, ExecutionContext
from container.tensorrt.device import Array, Device, Graph
from container.tensorrt.plan import Plan, Shapes, times

ALIGNMENT = 256
"""Of every tensor's address, as TensorRT requires."""
SCRATCH = "scratch"
DECLARED, OTHER = "declared", "other"
UNRECORDABLE = (
    "The plan cannot be recorded as CUDA graphs; it runs kernel by kernel, which is "
    "slower for small batches."
)


@dataclass(frozen=True, kw_only=True)
class Extent:
    """The bytes of one tensor in a block."""

    offset: int
    shape: tuple[int, ...]
    dtype: Any

    @property
    def end(self) -> int:
        return self.offset + math.prod(self.shape) * int(np.dtype(self.dtype).itemsize)

    def view(self, block: Array) -> Array:
        """Return the tensor in a block of bytes."""
        values: Array = block[self.offset : self.end].view(self.dtype).reshape(self.shape)
        return values


Layout = Mapping[str, Extent]
"""Tensors one behind the other, by name."""


def layout(shapes: Shapes, types: Mapping[str, Any]) -> Layout:
    """Return the tensors in the given order, each aligned."""
    extents: dict[str, Extent] = {}
    offset = 0
    for name, shape in shapes.items():
        extents[name] = Extent(offset=offset, shape=tuple(shape), dtype=types[name])
        offset = -(-extents[name].end // ALIGNMENT) * ALIGNMENT
    return extents


def block_size(extents: Layout) -> int:
    """Return the bytes of the whole block."""
    return max((extent.end for extent in extents.values()), default=0)


class ContextRunner:
    """One execution context of a plan with its own CUDA graph.

    TensorRT forbids changing a context from which a graph was captured. The contexts of one device
    run one after the other, so they share its scratch memory, and those with one name their blocks.
    """

    def __init__(self, plan: Plan, device: Device, *, name: str, records: bool) -> None:
        """`records`: runs become a graph, so its shapes must never change again.

        Raises DeviceFault.
        """
        self._plan, self._device, self._records = plan, device, records
        self._context: ExecutionContext = plan.context_without_memory()
        self._blocks = f"{name} inputs", f"{name} outputs"
        self._profile: int | None = None
        self._shapes: Shapes = {}
        self._graph: Graph | None = None
        self.failed_to_record = False
        """The runs could not be recorded, and go kernel by kernel."""

    def layouts(self, shapes: Shapes) -> tuple[Layout, Layout]:
        """Return the memory layout of inputs and outputs for these input shapes.

        Raises PlanRefused.
        """
        self._choose_profile(shapes)
        for name, shape in shapes.items():
            self._check(name, self._context.set_input_shape(name, tuple(shape)))
        self._plan.infer_shapes(self._context)
        rows = next(iter(shapes.values()))[0]
        answers = {name: tuple(self._context.get_tensor_shape(name)) for name in self._plan.outputs}
        for name, shape in answers.items():
            if -1 in shape:
                self._plan.refuse(
                    f"the shape of output {name} follows from values, not from shapes"
                )
            if shape[:1] != (rows,):
                self._plan.refuse(
                    f"output {name} is {times(shape)} for {rows} rows; its first axis must be "
                    "the batch"
                )
        return layout(shapes, self._plan.types), layout(answers, self._plan.types)

    def run(self, feed: Mapping[str, Array | None], shapes: Shapes, rows: int) -> dict[str, Array]:
        """Return the first `rows` rows of every output, as arrays of their own.

        An input of `None` is zeros. Raises DeviceFault.
        """
        if shapes != self._shapes:
            self._prepare(shapes)
        for name, view in self._inputs.items():
            values = feed[name]
            if values is None:
                view.fill(0)
            else:
                np.copyto(view, values)
        self._execute()
        return {name: view[:rows].copy() for name, view in self._outputs.items()}

    def close(self) -> None:
        """Free the graph and the context; the device keeps the memory."""
        if self._graph is not None:
            self._device.forget(self._graph)
            self._graph = None
        del self._context

    def _prepare(self, shapes: Shapes) -> None:
        self._shapes = {}
        hosts, views = [], []
        for name, extents in zip(self._blocks, self.layouts(shapes), strict=True):
            host, address = self._device.reserve(name, block_size(extents))
            for tensor, extent in extents.items():
                self._check(
                    tensor, self._context.set_tensor_address(tensor, address + extent.offset)
                )
            hosts.append(host)
            views.append({tensor: extent.view(host) for tensor, extent in extents.items()})
        self._host_inputs, self._host_outputs = hosts
        self._inputs, self._outputs = views
        self._shapes = shapes

    def _execute(self) -> None:
        """Run kernel by kernel at first, then as the CUDA graph captured after the first run."""
        if self._graph is not None:
            self._device.launch(self._graph)
        elif not self._queue():
            self._plan.fail("it cannot be queued")
        self._device.wait()
        if self._records and self._graph is None and not self.failed_to_record:
            self._graph = self._device.record_graph(self._queue)
            self.failed_to_record = self._graph is None

    def _queue(self) -> bool:
        inputs, outputs = self._blocks
        self._device.send(inputs, self._host_inputs)
        if not self._context.execute_async_v3(self._device.stream):
            return False
        self._device.bring_into(outputs, self._host_outputs)
        return True

    def _choose_profile(self, shapes: Shapes) -> None:
        index = self._plan.profile(shapes)
        if index == self._profile:
            return
        self._plan.select_profile(self._context, index, self._device.stream)
        self._device.wait()
        size = self._plan.scratch_bytes
        self._context.set_device_memory(self._device.buffer(SCRATCH, size), size)
        self._profile = index

    def _check(self, setting: str, is_set: bool) -> None:
        if not is_set:
            self._plan.fail(f"it takes no such {setting}")


class Slot:
    """Runs one batch at a time; only one thread at a time may call it."""

    def __init__(
        self,
        plan: Plan,
        cuda: CudaRuntime,
        declared: Sequence[Shapes],
        *,
        warn: Callable[[str], None],
    ) -> None:
        """`declared` shapes are recorded as graphs when they first run; their memory is taken here.

        Raises DeviceFault.
        """
        self._plan, self._warn, self._records = plan, warn, True
        self._device = Device(cuda)
        self._contexts: dict[tuple[tuple[int, ...], ...], ContextRunner | None] = {
            _key(shapes): None for shapes in declared
        }
        try:
            self._other = ContextRunner(plan, self._device, name=OTHER, records=False)
            # The largest batch's memory at once: growing later would move what graphs recorded.
            layouts = [self._other.layouts(shapes) for shapes in declared]
            for index, side in enumerate(("inputs", "outputs")):
                size = max((block_size(pair[index]) for pair in layouts), default=1)
                self._device.reserve(f"{DECLARED} {side}", size)
        except BaseException:
            self._device.close()
            raise

    def run(self, feed: Mapping[str, Array | None], shapes: Shapes, rows: int) -> dict[str, Array]:
        """Return the first `rows` rows of every output. Raises DeviceFault."""
        key = _key(shapes)
        if key not in self._contexts:
            return self._other.run(feed, shapes, rows)
        context = self._contexts[key]
        if context is None:
            context = self._contexts[key] = ContextRunner(
                self._plan, self._device, name=DECLARED, records=self._records
            )
        outputs = context.run(feed, shapes, rows)
        if context.failed_to_record and self._records:
            self._records = False
            self._warn(UNRECORDABLE)
        return outputs

    def close(self) -> None:
        """Free graphs, contexts and memory."""
        try:
            for context in (self._other, *self._contexts.values()):
                if context is not None:
                    context.close()
        finally:
            self._contexts.clear()
            self._device.close()


def _key(shapes: Shapes) -> tuple[tuple[int, ...], ...]:
    return tuple(map(tuple, shapes.values()))
