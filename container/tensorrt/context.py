"""One execution context of a plan: its memory, its shapes, and its runs as a CUDA graph."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from container.tensorrt.device import Array, Device, Graph
from container.tensorrt.plan import Plan, Profile, Shapes, allowed, nearest, times
from container.tensorrt.surface import IExecutionContext

ALIGNMENT = 256
"""Of every tensor's address, as TensorRT asks for."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """The place of one tensor in the block."""

    offset: int
    shape: tuple[int, ...]
    dtype: Any

    @property
    def size(self) -> int:
        """Bytes."""
        return math.prod(self.shape) * int(np.dtype(self.dtype).itemsize)

    def view(self, block: Array) -> Array:
        """The tensor in a block of bytes."""
        values: Array = (
            block[self.offset : self.offset + self.size].view(self.dtype).reshape(self.shape)
        )
        return values


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Tensors one behind the other, by name."""

    places: Mapping[str, Place]

    @property
    def size(self) -> int:
        """Bytes of the whole block."""
        return max((place.offset + place.size for place in self.places.values()), default=0)


def layout(shapes: Shapes, types: Mapping[str, Any]) -> Layout:
    """The tensors in the given order, each aligned."""
    places: dict[str, Place] = {}
    offset = 0
    for name, shape in shapes.items():
        places[name] = Place(offset=offset, shape=tuple(shape), dtype=types[name])
        offset = -(-(offset + places[name].size) // ALIGNMENT) * ALIGNMENT
    return Layout(places=places)


SCRATCH = "scratch"


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """A plan with its types and profiles, which are read once."""

    plan: Plan
    types: Mapping[str, Any]
    profiles: tuple[Profile, ...]

    def profile(self, shapes: Shapes) -> int:
        """The profile that takes the shapes, tuned nearest. Raises PlanRefused."""
        index = nearest(shapes, self.profiles)
        if index is None:
            listed = ", ".join(f"{name} {times(shape)}" for name, shape in shapes.items())
            self.plan.refuse(
                f"no optimization profile takes {listed}; allowed: {allowed(self.profiles)}"
            )
        return index


class ContextRunner:
    """One execution context of a plan with its own CUDA graph.

    TensorRT forbids changing a context from which a graph was captured. The contexts of one device
    run one after the other, so they share its scratch memory, and those with one name their blocks.
    """

    def __init__(self, loaded: Loaded, device: Device, *, name: str, records: bool) -> None:
        """`records`: runs become a graph, so its shapes must never change again.

        Raises DeviceFault.
        """
        self._loaded, self._device, self._records = loaded, device, records
        self._context: IExecutionContext = loaded.plan.context_without_memory()
        self._name = name
        self._profile: int | None = None
        self._shapes: Shapes = {}
        self._graph: Graph | None = None
        self._runs = 0
        self.failed_to_record = False
        """The runs could not be recorded, and go kernel by kernel."""

    def blocks(self, shapes: Shapes) -> tuple[Layout, Layout]:
        """Return the memory layout of inputs and outputs for these input shapes.

        Raises PlanRefused.
        """
        self._choose(shapes)
        for name, shape in shapes.items():
            self._set(name, self._context.set_input_shape(name, tuple(shape)))
        if missing := self._context.infer_shapes():
            self._loaded.plan.fail(f"it misses {', '.join(missing)}")
        rows = next(iter(shapes.values()))[0]
        answers = {
            name: tuple(self._context.get_tensor_shape(name)) for name in self._loaded.plan.outputs
        }
        for name, shape in answers.items():
            if -1 in shape:
                self._loaded.plan.refuse(
                    f"the shape of output {name} follows from values, not from shapes"
                )
            if shape[:1] != (rows,):
                self._loaded.plan.refuse(
                    f"output {name} is {times(shape)} for {rows} rows; its first axis must be "
                    "the batch"
                )
        return layout(shapes, self._loaded.types), layout(answers, self._loaded.types)

    def run(self, feed: Mapping[str, Array | None], shapes: Shapes, rows: int) -> dict[str, Array]:
        """The first `rows` rows of every output, as arrays of their own.

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
        """Gives the graph and the context back; the device keeps the memory."""
        if self._graph is not None:
            self._device.forget(self._graph)
            self._graph = None
        del self._context

    def _prepare(self, shapes: Shapes) -> None:
        self._shapes = {}
        inputs, outputs = self.blocks(shapes)
        self._sent = self._device.pinned(f"{self._name} inputs", inputs.size)
        self._brought = self._device.pinned(f"{self._name} outputs", outputs.size)
        self._inputs = self._views(inputs, self._sent, f"{self._name} inputs")
        self._outputs = self._views(outputs, self._brought, f"{self._name} outputs")
        self._shapes = shapes

    def _views(self, block: Layout, host: Array, name: str) -> dict[str, Array]:
        address = self._device.buffer(name, block.size)
        for tensor, place in block.places.items():
            self._set(tensor, self._context.set_tensor_address(tensor, address + place.offset))
        return {tensor: place.view(host) for tensor, place in block.places.items()}

    def _execute(self) -> None:
        """Run kernel by kernel at first, then as the CUDA graph captured after the first run."""
        if self._graph is not None:
            self._device.launch(self._graph)
        elif not self._queue():
            self._loaded.plan.fail("it cannot be queued")
        self._device.wait()
        if self._records and self._graph is None and not self.failed_to_record:
            self._graph = self._device.record_graph(self._queue)
            self.failed_to_record = self._graph is None

    def _queue(self) -> bool:
        self._device.send(f"{self._name} inputs", self._sent)
        if not self._context.execute_async_v3(self._device.stream):
            return False
        self._device.bring_into(f"{self._name} outputs", self._brought)
        return True

    def _choose(self, shapes: Shapes) -> None:
        index = self._loaded.profile(shapes)
        if index == self._profile:
            return
        self._set(
            f"profile {index}",
            self._context.set_optimization_profile_async(index, self._device.stream),
        )
        self._device.wait()
        size = self._loaded.plan.scratch_bytes
        self._context.set_device_memory(self._device.buffer(SCRATCH, size), size)
        self._profile = index

    def _set(self, what: str, done: bool) -> None:
        if not done:
            self._loaded.plan.fail(f"it takes no such {what}")
