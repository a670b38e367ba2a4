"""A plan in TensorRT's own runtime, with the surface of ort.OrtNetwork: what judges a network judges a plan.

Never executed whole where this repository was made: shapes and buffers are tested with a stand-in for TensorRT, and every name
against the real bindings of 10.16 and 11.4. The CUDA half, graphs too, ran on an H200 with cuda-bindings 13.3 and a copy in the
plan's place.
"""

from __future__ import annotations

import time
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

import numpy as np

from engine_build.errors import NetworkRefused
from engine_build.samples.feed import Array, Feed
from engine_build.tensorrt.bindings import check_bindings, cuda_runtime, error_logger, tensorrt
from engine_build.tensorrt.device import MIB, Device, Graph
from engine_build.tensorrt.fitting import Profile, Range, chosen, parts
from engine_build.tensorrt.surface import CudaRuntime, ICudaEngine, IExecutionContext, TensorRT


class TensorrtNetwork:
    """A plan, loaded on the first GPU, with one execution context."""

    def __init__(self, plan: Path, *, trt: TensorRT, cuda: CudaRuntime, host_code: bool = False) -> None:
        """`host_code` lets a version-compatible plan run the code inside it. Raises NetworkRefused."""
        self._device = Device(cuda)
        before, begin = self._device.used_mib(), time.monotonic()
        self._logger = error_logger(trt)
        self._runtime = trt.Runtime(self._logger)
        if host_code:
            self._runtime.engine_host_code_allowed = True
        self._engine = self._loaded(plan)
        self._context = self._created(plan)
        self.load_seconds = time.monotonic() - begin
        self.device_memory_mib = self._device.used_mib() - before
        """What loading took from the GPU: weights, kernels, and the memory a run needs."""
        self.execution_memory_mib = self._engine.device_memory_size_v2 / MIB
        """The part that a run needs, and that plans of one server can share."""
        self._profile = 0
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._answers: dict[str, tuple[int, ...]] = {}
        self._graph: Graph | None = None
        self._runs = 0
        """At the shapes of the last feed."""
        names = [self._engine.get_tensor_name(index) for index in range(self._engine.num_io_tensors)]
        is_input = {name: self._engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT for name in names}
        self.inputs: tuple[str, ...] = tuple(name for name in names if is_input[name])
        self.outputs: tuple[str, ...] = tuple(name for name in names if not is_input[name])
        self._types = {name: _numpy_type(trt, self._engine, name) for name in names}
        self._profiles = tuple(_profile(self._engine, self.inputs, index) for index in range(self.profiles))

    @property
    def profiles(self) -> int:
        """Optimization profiles."""
        return self._engine.num_optimization_profiles

    def rows(self, feed: Feed) -> Array:
        """float32 [rows, values]: each output flattened by row, one beside the other. Raises InputRefused and NetworkRefused."""
        wanted = {name: np.ascontiguousarray(feed[name], dtype=self._types[name]) for name in self.inputs}
        found = [self._run(part)[:rows] for part, rows in parts(wanted, self._profiles)]
        return found[0] if len(found) == 1 else np.concatenate(found)

    def close(self) -> None:
        """Gives the GPU's memory back, before the next plan is measured."""
        self._forget()
        del self._context, self._engine, self._runtime
        self._device.close()

    def __enter__(self) -> TensorrtNetwork:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _run(self, feed: Feed) -> Array:
        shapes = {name: values.shape for name, values in feed.items()}
        if shapes != self._shapes:
            self._prepare(feed, shapes)
        for name, values in feed.items():
            self._device.send(name, values)
        self._execute()
        answers = [self._device.bring(name, shape, self._types[name]) for name, shape in self._answers.items()]
        self._device.wait()
        return _beside(answers, len(next(iter(feed.values()))))

    def _prepare(self, feed: Feed, shapes: dict[str, tuple[int, ...]]) -> None:
        """Makes the context ready for other shapes than before."""
        self._forget()
        self._choose(feed)
        for name, values in feed.items():
            self._set(name, self._context.set_input_shape(name, values.shape))
            self._set(name, self._context.set_tensor_address(name, self._device.buffer(name, values.nbytes)))
        if missing := self._context.infer_shapes():
            self._fail(f"it misses {', '.join(missing)}")
        self._answers = {name: tuple(self._context.get_tensor_shape(name)) for name in self.outputs}
        for name, shape in self._answers.items():
            if -1 in shape:
                self._fail(f"the shape of output {name} follows from values, not from shapes")
            size = int(np.prod(shape)) * np.dtype(self._types[name]).itemsize
            self._set(name, self._context.set_tensor_address(name, self._device.buffer(name, size)))
        self._shapes = shapes

    def _execute(self) -> None:
        """Runs kernel by kernel at first, as a CUDA graph from the second run at the same shapes on, as a server does."""
        self._runs += 1
        if self._runs == 2:
            self._graph = self._device.recorded(self._queue)
        if self._graph is not None:
            self._device.launch(self._graph)
        elif not self._queue():
            self._fail("it cannot be queued")

    def _queue(self) -> bool:
        return self._context.execute_async_v3(self._device.stream)

    def _forget(self) -> None:
        if self._graph is not None:
            self._device.forget(self._graph)
        self._graph, self._runs, self._shapes = None, 0, {}

    def _choose(self, feed: Feed) -> None:
        index = chosen(feed, self._profiles)
        if index != self._profile:
            self._set(f"profile {index}", self._context.set_optimization_profile_async(index, self._device.stream))
            self._device.wait()
            self._profile = index

    def _loaded(self, plan: Path) -> ICudaEngine:
        engine = self._runtime.deserialize_cuda_engine(plan.read_bytes())
        if engine is None:
            self._fail(f"{plan.name} does not load")
        return engine

    def _created(self, plan: Path) -> IExecutionContext:
        context = self._engine.create_execution_context()
        if context is None:
            self._fail(f"{plan.name} gets no execution context")
        return context

    def _set(self, what: str, done: bool) -> None:
        if not done:
            self._fail(f"it takes no such {what}")

    def _fail(self, reason: str) -> NoReturn:
        words = self._logger.errors[-1] if self._logger.errors else "TensorRT says no more"
        raise NetworkRefused(f"the plan does not run: {reason} ({words}).")


def opened(plan: Path, *, host_code: bool = False) -> TensorrtNetwork:
    """A plan in this machine's TensorRT. Raises InputRefused where there is none."""
    check_bindings()
    return TensorrtNetwork(plan, trt=tensorrt(), cuda=cuda_runtime(), host_code=host_code)


def _profile(engine: ICudaEngine, inputs: tuple[str, ...], index: int) -> Profile:
    shapes = {name: [tuple(sizes) for sizes in engine.get_tensor_profile_shape(name, index)] for name in inputs}
    return {name: Range(smallest=low, opt=opt, largest=high) for name, (low, opt, high) in shapes.items()}


def _numpy_type(trt: TensorRT, engine: ICudaEngine, name: str) -> Any:
    try:
        return trt.nptype(engine.get_tensor_dtype(name))
    except TypeError as error:
        raise NetworkRefused(f"tensor {name} of the plan has a type that numpy lacks; keep inputs and outputs FP32.") from error


def _beside(answers: list[Array], rows: int) -> Array:
    if any(answer.ndim == 0 or len(answer) != rows for answer in answers):
        told = ", ".join(str(list(answer.shape)) for answer in answers)
        raise NetworkRefused(f"the plan's outputs have shapes {told} for {rows} rows; each needs the batch as its first axis.")
    flat: list[Array] = [answer.reshape(rows, -1).astype(np.float32) for answer in answers]
    beside: Array = flat[0] if len(flat) == 1 else np.concatenate(flat, axis=1)
    return beside
