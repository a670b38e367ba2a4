"""What can run a model on this machine: its runtimes, and networks, plans and modules in them.

Needs numpy and what it loads, nothing else: a runtime's library is imported when it is used.
"""

from __future__ import annotations

import copy
import ctypes
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from container.tensorrt.bindings import tensorrt
from engine_build.datasets.dataset import Array, Feed

RuntimeName = Literal["onnxruntime", "onnxruntime CUDA", "pytorch", "pytorch CUDA", "tensorrt"]
DRIVER = "libcuda.so.1"
MODULES: dict[RuntimeName, tuple[str, ...]] = {
    "onnxruntime": ("engine_build.ort",),
    "onnxruntime CUDA": ("engine_build.ort",),
    "pytorch": ("engine_build.exported", "torch.export"),
    "pytorch CUDA": (),
    "tensorrt": ("engine_build.tensorrt.network", "cuda.bindings.runtime"),
}
ON_CPU: tuple[RuntimeName, ...] = ("onnxruntime", "pytorch")
ORDER: tuple[RuntimeName, ...] = ("tensorrt", "onnxruntime CUDA", "pytorch CUDA", *ON_CPU)


class Running(Protocol):
    """A network, plan or module that is loaded."""

    def rows(self, feed: Feed) -> Array:
        """Return float32 [rows, values]."""
        ...


class Source(Running, Protocol):
    """The source model: a module, and the order of its inputs."""

    inputs: tuple[str, ...]

    @property
    def module(self) -> Any:
        """`torch.nn.Module` in evaluation mode, float32, on the CPU."""
        ...


class Load(Protocol):
    """Loads a network or plan."""

    def __call__(self, runtime: RuntimeName, path: Path, *, as_served: bool = True) -> Running:
        """`as_served`: with the servers' busy waiting, which slows other work on the machine."""
        ...


Runtimes = Mapping[RuntimeName, str | None]
"""Why this machine lacks a runtime; None where it has it."""


def _has_gpu() -> bool:
    try:
        driver = ctypes.CDLL(DRIVER)
    except OSError:
        return False
    count = ctypes.c_int(0)
    calls = (("cuInit", 0), ("cuDeviceGetCount", ctypes.byref(count)))
    return all(getattr(driver, name)(value) == 0 for name, value in calls) and count.value > 0


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A network, plan or module in one runtime, not loaded yet."""

    runtime: RuntimeName
    precision: str
    load: Callable[[], Running]
    is_loaded: bool = False
    """True where `load` returns what is loaded already: its footprint cannot be measured."""


@dataclass(frozen=True, kw_only=True)
class Artifacts:
    """What there is to run beside the candidates; networks by the name of their precision."""

    networks: Mapping[str, Path] = field(default_factory=dict)
    source: Source | None = None


class TorchModule:
    """A copy of a module on a device; `rows` returns once its result is in host memory."""

    def __init__(
        self,
        module: Any,
        inputs: Sequence[str],
        *,
        device: Literal["cpu", "cuda"],
        half: bool = False,
    ) -> None:
        self._module = copy.deepcopy(module).to(device).eval()
        if half:
            self._module = self._module.half()
        self._inputs = tuple(inputs)
        self._device = device
        self._half = half

    def rows(self, feed: Feed) -> Array:
        """Return float32 [rows, values]: each output flattened by row, side by side."""
        import torch

        with torch.inference_mode():
            tensors = [torch.from_numpy(feed[name]).to(self._device) for name in self._inputs]
            if self._half:
                tensors = [
                    value.half() if value.is_floating_point() else value for value in tensors
                ]
            answer = self._module(*tensors)
            outputs = answer if isinstance(answer, (tuple, list)) else (answer,)
            flat = [output.reshape(len(output), -1).float().cpu().numpy() for output in outputs]
        rows: Array = flat[0] if len(flat) == 1 else np.concatenate(flat, axis=1)
        return rows


def machine_runtimes(
    *,
    has_module: Callable[[str], bool] = lambda name: importlib.util.find_spec(name) is not None,
    has_gpu: Callable[[], bool] = _has_gpu,
    providers: Callable[[], Sequence[str]] = lambda: import_module(
        "onnxruntime"
    ).get_available_providers(),
    torch_has_cuda: Callable[[], bool] = lambda: bool(import_module("torch").cuda.is_available()),
) -> Runtimes:
    """Return every known runtime; nothing heavy is imported unless there is a GPU."""
    gpu = None if has_gpu() else "no NVIDIA GPU"
    torch = None if has_module("torch") else "no package torch"
    onnxruntime = None if has_module("onnxruntime") else "no package onnxruntime"
    lacks: dict[RuntimeName, str | None] = {
        "onnxruntime": onnxruntime,
        "onnxruntime CUDA": onnxruntime if gpu is None else gpu,
        "pytorch": torch,
        "pytorch CUDA": torch if gpu is None else gpu,
        "tensorrt": gpu,
    }
    if lacks["onnxruntime CUDA"] is None:
        from engine_build.ort import CUDA_PROVIDER

        if CUDA_PROVIDER not in providers():
            lacks["onnxruntime CUDA"] = f"its build has no {CUDA_PROVIDER}"
    if lacks["pytorch CUDA"] is None and not torch_has_cuda():
        lacks["pytorch CUDA"] = "torch sees no GPU"
    if gpu is None and not any(map(has_module, ("tensorrt", "tensorrt_bindings"))):
        lacks["tensorrt"] = "no package tensorrt"
    return lacks


def missing_runtimes(runtimes: Runtimes) -> str | None:
    """Return what this machine lacks, in one line; None where it has everything."""
    missing = [f"{name} ({reason})" for name, reason in runtimes.items() if reason is not None]
    return f"not on this machine: {', '.join(missing)}" if missing else None


def runnable(artifacts: Artifacts, runtimes: Runtimes) -> tuple[Subject, ...]:
    """Return what this machine can run of the artifacts, the GPU's first."""
    of_networks: tuple[RuntimeName, ...] = ("onnxruntime CUDA", "onnxruntime")
    subjects = [
        Subject(runtime=runtime, precision=name, load=partial(load_engine, runtime, path))
        for runtime in of_networks
        for name, path in artifacts.networks.items()
    ]
    if artifacts.source is not None:
        subjects += _torch_subjects(artifacts.source)
    on_machine = (subject for subject in subjects if runtimes[subject.runtime] is None)
    return tuple(sorted(on_machine, key=lambda subject: ORDER.index(subject.runtime)))


def import_runtime(runtime: RuntimeName) -> None:
    """Import a runtime's library, so that no engine's load time includes it."""
    for module in MODULES[runtime]:
        with suppress(ImportError):
            import_module(module)
    if runtime == "tensorrt":
        # By whichever name it has: one process cannot hold both.
        with suppress(ImportError):
            tensorrt()


def load_engine(runtime: RuntimeName, path: Path, *, as_served: bool = True) -> Running:
    """Load a network, plan or program in a runtime.

    Raises SourceFault, InputRefused and NetworkRefused.
    """
    if runtime == "tensorrt":
        from engine_build.tensorrt.network import load_plan

        # Plans measured here were compiled here: the code in a version-compatible one is ours.
        return load_plan(path, host_code=True)
    if runtime == "pytorch":
        from engine_build.exported import ExportedProgram

        return ExportedProgram(path)
    from engine_build.ort import BoundNetwork, OrtNetwork

    if runtime == "onnxruntime CUDA":
        return BoundNetwork(path)
    return OrtNetwork(path, as_served=as_served)


def settling(runtime: str) -> int:
    """Return the runs after which a runtime runs a shape as servers do.

    A plan prepares its context in the first run of a shape, and records its CUDA graph in the
    second.
    """
    return 2 if runtime == "tensorrt" else 0


def close(engine: Running) -> None:
    """Give an engine's memory back, where its runtime does not do so by itself."""
    method = getattr(engine, "close", None)
    if method is not None:
        method()


def _torch_subjects(source: Source) -> list[Subject]:
    def load_copy(*, half: bool) -> TorchModule:
        return TorchModule(source.module, source.inputs, device="cuda", half=half)

    def load_source() -> Source:
        # Its weights were released after the export; this reads them again before the first run.
        assert source.module is not None
        return source

    return [
        Subject(runtime="pytorch CUDA", precision="fp32", load=partial(load_copy, half=False)),
        Subject(runtime="pytorch CUDA", precision="fp16", load=partial(load_copy, half=True)),
        Subject(runtime="pytorch", precision="fp32", load=load_source, is_loaded=True),
    ]
