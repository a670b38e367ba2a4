"""A plan in TensorRT's own runtime: its tensors, its optimization profiles, and its contexts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from container.tensorrt.bindings import ExecutionContext, TensorRT, error_logger, load_plugins
from container.tensorrt.faults import DeviceOutOfMemory, PlanRefused, mentions_memory_shortage

Sizes = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Range:
    """(min, opt, max) sizes of one input in one profile."""

    smallest: Sizes
    opt: Sizes
    largest: Sizes

    def takes(self, shape: Sequence[int]) -> bool:
        """True when every axis is within the range."""
        return len(shape) == len(self.smallest) and all(
            low <= size <= high
            for low, size, high in zip(self.smallest, shape, self.largest, strict=True)
        )


ReadPlan = Callable[[Path], bytes | bytearray]
Profile = Mapping[str, Range]
Shapes = Mapping[str, Sizes]


def taking(shapes: Shapes, profiles: Sequence[Profile]) -> list[int]:
    """Return the profiles that take every shape."""
    return [
        index
        for index, profile in enumerate(profiles)
        if all(ranges.takes(shapes[name]) for name, ranges in profile.items())
    ]


def nearest(shapes: Shapes, profiles: Sequence[Profile]) -> int | None:
    """Return the profile that takes the shapes and is tuned nearest to them, or None."""

    def distance(index: int) -> int:
        return sum(
            abs(math.prod(shapes[name]) - math.prod(ranges.opt))
            for name, ranges in profiles[index].items()
        )

    return min(taking(shapes, profiles), key=distance, default=None)


def allowed(profiles: Sequence[Profile]) -> str:
    """Format the ranges of profiles."""
    return "; ".join(
        ", ".join(
            f"{name} {times(sizes.smallest)} to {times(sizes.largest)}"
            for name, sizes in profile.items()
        )
        for profile in profiles
    )


def times(sizes: Sequence[int]) -> str:
    """Format sizes, such as 4x16."""
    return "x".join(map(str, sizes))


class Plan:
    """A plan, loaded on the current GPU."""

    def __init__(
        self,
        path: Path,
        *,
        trt: TensorRT,
        host_code: bool = False,
        plugins: Sequence[Path] = (),
        read: ReadPlan = Path.read_bytes,
    ) -> None:
        """`host_code` lets a version-compatible plan run the code inside it.

        `plugins` are libraries of custom operators; `read` returns the plan's bytes. Raises
        PlanRefused and DeviceOutOfMemory.
        """
        load_plugins(plugins)
        self._trt, self._path = trt, path
        self._logger = error_logger(trt)
        # trtexec registers TensorRT's own custom operators too, so plans may hold them.
        trt.init_libnvinfer_plugins(self._logger, "")
        try:
            self._runtime = trt.Runtime(self._logger)
        except TypeError:  # the binding's words for a constructor that returns nothing
            self.fail("TensorRT does not start on this GPU")
        if host_code:
            self._runtime.engine_host_code_allowed = True
        engine = self._runtime.deserialize_cuda_engine(read(path))
        if engine is None:
            self.fail(f"{path.name} does not load")
        self._engine = engine
        names = [engine.get_tensor_name(index) for index in range(engine.num_io_tensors)]
        modes = {name: engine.get_tensor_mode(name) for name in names}
        self.inputs = tuple(name for name in names if modes[name] == trt.TensorIOMode.INPUT)
        self.outputs = tuple(name for name in names if name not in self.inputs)
        on_host = [
            name for name in names if engine.get_tensor_location(name) == trt.TensorLocation.HOST
        ]
        if on_host:
            # An address on the GPU, given for one of these, is read as the host's and ends the
            # process.
            self.refuse(
                f"it reads or writes {', '.join(on_host)} on the host, as values that decide on "
                "shapes"
            )
        self.types: dict[str, Any] = {name: self._numpy_type(name) for name in names}
        """Numpy's type of every tensor."""
        self.profiles = tuple(map(self._profile, range(engine.num_optimization_profiles)))
        """The sizes it was compiled for."""

    @property
    def scratch_bytes(self) -> int:
        """Device memory that one run needs beside inputs and outputs, at the largest sizes."""
        return int(self._engine.device_memory_size_v2)

    def profile(self, shapes: Shapes) -> int:
        """Return the profile that takes the shapes, tuned nearest. Raises PlanRefused."""
        index = nearest(shapes, self.profiles)
        if index is None:
            listed = ", ".join(f"{name} {times(shape)}" for name, shape in shapes.items())
            self.refuse(
                f"no optimization profile takes {listed}; allowed: {allowed(self.profiles)}"
            )
        return index

    def context_without_memory(self) -> ExecutionContext:
        """Return a context that runs in whatever scratch memory it is given.

        Raises PlanRefused and DeviceOutOfMemory.
        """
        strategy = self._trt.ExecutionContextAllocationStrategy.USER_MANAGED
        return self._check_context(self._engine.create_execution_context(strategy))

    def select_profile(self, context: ExecutionContext, index: int, stream: int) -> None:
        """Queue what a context needs to run in a profile. Raises PlanRefused, DeviceOutOfMemory."""
        try:
            context.set_optimization_profile_async(index, stream)
        except RuntimeError:  # without TensorRT's own words
            self.fail(f"it takes no such profile {index}")

    def infer_shapes(self, context: ExecutionContext) -> None:
        """Let a context compute its outputs' shapes. Raises PlanRefused, DeviceOutOfMemory."""
        try:
            missing = context.infer_shapes()
        except RuntimeError:
            self.fail("its outputs' shapes cannot be computed")
        if missing:
            self.fail(f"it misses {', '.join(missing)}")

    def fail(self, reason: str) -> NoReturn:
        """Raise PlanRefused or DeviceOutOfMemory with TensorRT's last error, and clear all.

        A lack of memory comes first in its log, and what follows from it later.
        """
        errors = [*self._logger.errors] or ["TensorRT says no more"]
        self._logger.errors.clear()
        shortages = [*filter(mentions_memory_shortage, errors)]
        words = (shortages or errors)[-1]
        kind = DeviceOutOfMemory if shortages else PlanRefused
        raise kind(f"the plan does not run: {reason} ({words}).")

    def refuse(self, reason: str) -> NoReturn:
        """Raise PlanRefused without TensorRT's last error, which is about something else."""
        raise PlanRefused(f"the plan does not run: {reason}.")

    def close(self) -> None:
        """Free the GPU's memory; its contexts must be gone."""
        del self._engine, self._runtime

    def _check_context(self, context: ExecutionContext | None) -> ExecutionContext:
        if context is None:
            self.fail(f"{self._path.name} gets no execution context")
        return context

    def _profile(self, index: int) -> Profile:
        ranges: dict[str, Range] = {}
        for name in self.inputs:
            low, opt, high = map(tuple, self._engine.get_tensor_profile_shape(name, index))
            ranges[name] = Range(smallest=low, opt=opt, largest=high)
        return ranges

    def _numpy_type(self, name: str) -> Any:
        try:
            return self._trt.nptype(self._engine.get_tensor_dtype(name))
        except TypeError as error:
            raise PlanRefused(
                f"tensor {name} of the plan has a type that numpy lacks; keep inputs and outputs "
                "FP32."
            ) from error
