"""The GPU's faults as the build's own, and the bindings that judging a plan needs.

Which optimization profile a feed fits, and how a feed that none takes is made to fit: pure
arithmetic on shapes.

A plan refuses what is smaller than its smallest profile as well as what is larger, and a server
meets both, so a feed is filled
up: rows by repeating the last one, whose answers are thrown away; tokens by zeros, which an
attention mask of zeros hides.
A batch that is too large is cut.

A plan in TensorRT's own runtime, with the surface of ort.OrtNetwork: what judges a network
judges a plan.

Never executed whole where this repository was made: shapes and buffers are tested with a stand-in
for TensorRT, and every name
against the real bindings of 10.16 and 11.4. The CUDA half, graphs too, ran on an H200 with
cuda-bindings 13.3 and a copy in the
plan's place.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from container.tensorrt.bindings import bindings
from container.tensorrt.device import MIB, Device, Graph
from container.tensorrt.faults import DeviceFault, NoBindings
from container.tensorrt.plan import Plan, Profile, Range, allowed, nearest, taking, times
from container.tensorrt.surface import CudaRuntime, IExecutionContext, TensorRT
from engine_build.datasets.dataset import ATTENTION_MASK, Array, Feed
from engine_build.errors import InputRefused, NetworkRefused


@contextmanager
def faults_refuse_the_network() -> Iterator[None]:
    """Raises NetworkRefused for a DeviceFault, in the same words."""
    try:
        yield
    except DeviceFault as fault:
        raise NetworkRefused(str(fault)) from fault


def installed_bindings() -> tuple[Any, Any]:
    """TensorRT's and CUDA's modules.

    Raises InputRefused where plans could be compiled, and not judged.
    """
    try:
        return bindings()
    except NoBindings as fault:
        raise InputRefused(
            f"plans cannot be judged on this machine, whose Python has no {fault.module}; build "
            "in the GPU builder image."
        ) from fault


def split_feed(feed: Feed, profiles: Sequence[Profile]) -> Iterator[tuple[Feed, int]]:
    """The feed in parts that some profile takes, each with the number of its own rows.

    Raises InputRefused.
    """
    rows = len(next(iter(feed.values())))
    most = max(
        (_most_rows(profile) for profile in profiles if _takes_rows(feed, profile)), default=rows
    )
    for begin in range(0, rows, most):
        part = {name: values[begin : begin + most] for name, values in feed.items()}
        yield fill_feed(part, profiles), min(most, rows - begin)


def fill_feed(feed: Feed, profiles: Sequence[Profile]) -> Feed:
    """The feed itself where a profile takes it, or else filled up to the smallest that does.

    Raises InputRefused.
    """
    if taking(_shapes(feed), profiles):
        return feed
    grown = [
        {name: _grown(values, profile[name], feed) for name, values in feed.items()}
        for profile in profiles
    ]
    fitting = [item for item in grown if taking(_shapes(item), profiles)]
    if not fitting:
        shapes = ", ".join(f"{name} {times(values.shape)}" for name, values in feed.items())
        raise InputRefused(
            f"no optimization profile of the plan takes {shapes}; allowed: {allowed(profiles)}."
        )
    return min(fitting, key=lambda entry: sum(values.size for values in entry.values()))


def nearest_profile(feed: Feed, profiles: Sequence[Profile]) -> int:
    """The profile that takes a feed and is tuned nearest to it. Raises InputRefused."""
    index = nearest(_shapes(feed), profiles)
    if index is None:
        raise InputRefused(
            f"no optimization profile of the plan takes the feed; allowed: {allowed(profiles)}."
        )
    return index


def _shapes(feed: Feed) -> dict[str, tuple[int, ...]]:
    return {name: values.shape for name, values in feed.items()}


def _takes_rows(feed: Feed, profile: Profile) -> bool:
    """True when the rows fit, however many there are."""
    shapes = {name: _grown(values[:1], profile[name], feed).shape for name, values in feed.items()}
    return all(
        ranges.takes((ranges.smallest[0], *shapes[name][1:])) for name, ranges in profile.items()
    )


def _most_rows(profile: Profile) -> int:
    return min(ranges.largest[0] for ranges in profile.values())


def _grown(values: Array, ranges: Range, feed: Feed) -> Array:
    missing = [
        max(0, least - size) for least, size in zip(ranges.smallest, values.shape, strict=False)
    ]
    if values.ndim == 2 and missing[1] and ATTENTION_MASK in feed:
        values = np.pad(values, ((0, 0), (0, missing[1])))
    if missing and missing[0] and len(values):
        values = np.concatenate([values, np.repeat(values[-1:], missing[0], axis=0)])
    return values


class TensorrtNetwork:
    """A plan, loaded on the first GPU, with one execution context."""

    @faults_refuse_the_network()
    def __init__(
        self, plan: Path, *, trt: TensorRT, cuda: CudaRuntime, host_code: bool = False
    ) -> None:
        """`host_code` lets a version-compatible plan run the code inside it.

        Raises NetworkRefused.
        """
        self._device = Device(cuda)
        before, begin = self._device.used_mib(), time.monotonic()
        self._plan = Plan(plan, trt=trt, host_code=host_code)
        self._context: IExecutionContext = self._plan.context()
        self.load_seconds = time.monotonic() - begin
        self.device_memory_mib = self._device.used_mib() - before
        """What loading took from the GPU: weights, kernels, and the memory a run needs."""
        self.execution_memory_mib = self._plan.scratch_bytes / MIB
        """The part that a run needs, and that plans of one server can share."""
        self._profile = 0
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._answers: dict[str, tuple[int, ...]] = {}
        self._graph: Graph | None = None
        self._runs = 0
        """At the shapes of the last feed."""
        self.inputs, self.outputs = self._plan.inputs, self._plan.outputs
        self._types, self._profiles = self._plan.types, self._plan.profiles

    @property
    def profiles(self) -> int:
        """Optimization profiles."""
        return len(self._profiles)

    @faults_refuse_the_network()
    def rows(self, feed: Feed) -> Array:
        """float32 [rows, values]: each output flattened by row, one beside the other.

        Raises InputRefused and NetworkRefused.
        """
        wanted = {
            name: np.ascontiguousarray(feed[name], dtype=self._types[name]) for name in self.inputs
        }
        found = [self._run(part)[:rows] for part, rows in split_feed(wanted, self._profiles)]
        return found[0] if len(found) == 1 else np.concatenate(found)

    @faults_refuse_the_network()
    def close(self) -> None:
        """Gives the GPU's memory back, before the next plan is measured."""
        self._forget()
        del self._context
        self._plan.close()
        self._device.close()

    def __enter__(self) -> TensorrtNetwork:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _run(self, feed: Feed) -> Array:
        shapes = {name: values.shape for name, values in feed.items()}
        if shapes != self._shapes:
            self._prepare(feed, shapes)
        for name, values in feed.items():
            self._device.send(name, values)
        self._execute()
        answers = [
            self._device.bring(name, shape, self._types[name])
            for name, shape in self._answers.items()
        ]
        self._device.wait()
        return _beside(answers, len(next(iter(feed.values()))))

    def _prepare(self, feed: Feed, shapes: dict[str, tuple[int, ...]]) -> None:
        """Makes the context ready for other shapes than before."""
        self._forget()
        self._choose(feed)
        for name, values in feed.items():
            self._set(name, self._context.set_input_shape(name, values.shape))
            self._set(
                name,
                self._context.set_tensor_address(name, self._device.buffer(name, values.nbytes)),
            )
        if missing := self._context.infer_shapes():
            self._plan.fail(f"it misses {', '.join(missing)}")
        self._answers = {name: tuple(self._context.get_tensor_shape(name)) for name in self.outputs}
        for name, shape in self._answers.items():
            if -1 in shape:
                self._plan.fail(f"the shape of output {name} follows from values, not from shapes")
            size = int(np.prod(shape)) * np.dtype(self._types[name]).itemsize
            self._set(name, self._context.set_tensor_address(name, self._device.buffer(name, size)))
        self._shapes = shapes

    def _execute(self) -> None:
        """Run kernel by kernel first, and as a CUDA graph from the second run of a shape on."""
        self._runs += 1
        if self._runs == 2:
            self._graph = self._device.record_graph(self._queue)
        if self._graph is not None:
            self._device.launch(self._graph)
        elif not self._queue():
            self._plan.fail("it cannot be queued")

    def _queue(self) -> bool:
        return self._context.execute_async_v3(self._device.stream)

    def _forget(self) -> None:
        if self._graph is not None:
            self._device.forget(self._graph)
        self._graph, self._runs, self._shapes = None, 0, {}

    def _choose(self, feed: Feed) -> None:
        index = nearest_profile(feed, self._profiles)
        if index != self._profile:
            self._set(
                f"profile {index}",
                self._context.set_optimization_profile_async(index, self._device.stream),
            )
            self._device.wait()
            self._profile = index

    def _set(self, what: str, done: bool) -> None:
        if not done:
            self._plan.fail(f"it takes no such {what}")


def load_plan(plan: Path, *, host_code: bool = False) -> TensorrtNetwork:
    """A plan in this machine's TensorRT. Raises InputRefused where there is none."""
    trt, cuda = installed_bindings()
    return TensorrtNetwork(plan, trt=trt, cuda=cuda, host_code=host_code)


def _beside(answers: list[Array], rows: int) -> Array:
    if any(answer.ndim == 0 or len(answer) != rows for answer in answers):
        shapes = ", ".join(str(list(answer.shape)) for answer in answers)
        raise NetworkRefused(
            f"the plan's outputs have shapes {shapes} for {rows} rows; each needs the batch as its "
            "first axis."
        )
    flat: list[Array] = [answer.reshape(rows, -1).astype(np.float32) for answer in answers]
    beside: Array = flat[0] if len(flat) == 1 else np.concatenate(flat, axis=1)
    return beside
