"""What can run a model on this machine: its runtimes, and networks, plans and modules in them.

Needs numpy and what it loads, nothing else: a runtime's library is imported when it is used.
"""

from __future__ import annotations

import copy
import ctypes
import importlib
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
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
    "pytorch": (),
    "pytorch CUDA": (),
    "tensorrt": ("engine_build.tensorrt.network", "cuda.bindings.runtime"),
}
ON_CPU: tuple[RuntimeName, ...] = ("onnxruntime", "pytorch")


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


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """A runtime, and why this machine lacks it."""

    name: RuntimeName
    lacks: str | None
    """None where the machine has it."""


@dataclass(frozen=True, kw_only=True)
class Probes:
    """Questions to the machine."""

    has_module: Callable[[str], bool]
    has_gpu: Callable[[], bool]
    providers: Callable[[], Sequence[str]]
    """Execution providers of ONNX Runtime."""
    torch_has_cuda: Callable[[], bool]


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
    """What there is to run; networks and plans by the name of their precision."""

    networks: Mapping[str, Path] = field(default_factory=dict)
    plans: Mapping[str, Path] = field(default_factory=dict)
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
            answer = self._module(
                *(self._to_device(torch.from_numpy(feed[name])) for name in self._inputs)
            )
            outputs = answer if isinstance(answer, (tuple, list)) else (answer,)
            flat = [output.reshape(len(output), -1).float().cpu().numpy() for output in outputs]
        rows: Array = flat[0] if len(flat) == 1 else np.concatenate(flat, axis=1)
        return rows

    def _to_device(self, tensor: Any) -> Any:
        there = tensor.to(self._device)
        return there.half() if self._half and there.is_floating_point() else there


def machine_runtimes(probes: Probes | None = None) -> tuple[Runtime, ...]:
    """Return every known runtime; nothing heavy is imported unless there is a GPU."""
    probes = machine_probes() if probes is None else probes
    driver = None if probes.has_gpu() else "no NVIDIA GPU"
    torch = None if probes.has_module("torch") else "no package torch"
    onnxruntime = None if probes.has_module("onnxruntime") else "no package onnxruntime"
    lacks: dict[RuntimeName, str | None] = {
        "onnxruntime": onnxruntime,
        "onnxruntime CUDA": driver if driver is not None else onnxruntime,
        "pytorch": torch,
        "pytorch CUDA": driver if driver is not None else torch,
        "tensorrt": driver,
    }
    further = {
        "onnxruntime CUDA": _lacks_provider,
        "pytorch CUDA": _lacks_torch_cuda,
        "tensorrt": _lacks_tensorrt,
    }
    return tuple(
        Runtime(
            name=name,
            lacks=further[name](probes) if reason is None and name in further else reason,
        )
        for name, reason in lacks.items()
    )


def missing_runtimes(runtimes: Sequence[Runtime]) -> str | None:
    """Return what this machine lacks, in one line; None where it has everything."""
    missing = [f"{item.name} ({item.lacks})" for item in runtimes if item.lacks is not None]
    return f"not on this machine: {', '.join(missing)}" if missing else None


def has_runtime(runtimes: Sequence[Runtime], name: RuntimeName) -> bool:
    """Return True where the machine has a runtime."""
    return any(runtime.name == name and runtime.lacks is None for runtime in runtimes)


def machine_probes() -> Probes:
    """Return the probes of the machine itself."""
    return Probes(
        has_module=lambda name: importlib.util.find_spec(name) is not None,
        has_gpu=_has_gpu,
        providers=lambda: importlib.import_module("onnxruntime").get_available_providers(),
        torch_has_cuda=lambda: bool(importlib.import_module("torch").cuda.is_available()),
    )


def runnable(artifacts: Artifacts, runtimes: Sequence[Runtime]) -> tuple[Subject, ...]:
    """Return what this machine can run of the artifacts, the GPU's first."""
    source = artifacts.source
    subjects = [
        *(_file("tensorrt", name, path) for name, path in artifacts.plans.items()),
        *(_file("onnxruntime CUDA", name, path) for name, path in artifacts.networks.items()),
        *([] if source is None else [_torch_cuda(source, "fp32"), _torch_cuda(source, "fp16")]),
        *(_file("onnxruntime", name, path) for name, path in artifacts.networks.items()),
        *([] if source is None else [_torch_cpu(source)]),
    ]
    return tuple(subject for subject in subjects if has_runtime(runtimes, subject.runtime))


def import_runtime(runtime: RuntimeName) -> None:
    """Import a runtime's library, so that no engine's load time includes it."""
    for module in MODULES[runtime]:
        with suppress(ImportError):
            importlib.import_module(module)
    if runtime == "tensorrt":
        # By whichever name it has: one process cannot hold both.
        with suppress(ImportError):
            tensorrt()


def load_engine(runtime: RuntimeName, path: Path, *, as_served: bool = True) -> Running:
    """Load a network or plan in a runtime. Raises SourceFault, InputRefused and NetworkRefused."""
    if runtime == "tensorrt":
        from engine_build.tensorrt.network import load_plan

        # Plans measured here were compiled here, so the code inside a version-compatible one is
        # ours.
        return load_plan(path, host_code=True)
    from engine_build.ort import BoundNetwork, OrtNetwork

    if runtime == "onnxruntime CUDA":
        return BoundNetwork(path)
    return OrtNetwork(path, as_served=as_served)


def close(engine: Running) -> None:
    """Give an engine's memory back, where its runtime does not do so by itself."""
    method = getattr(engine, "close", None)
    if method is not None:
        method()


def _lacks_provider(probes: Probes) -> str | None:
    from engine_build.ort import CUDA_PROVIDER

    return None if CUDA_PROVIDER in probes.providers() else f"its build has no {CUDA_PROVIDER}"


def _lacks_torch_cuda(probes: Probes) -> str | None:
    return None if probes.torch_has_cuda() else "torch sees no GPU"


def _lacks_tensorrt(probes: Probes) -> str | None:
    names = ("tensorrt", "tensorrt_bindings")
    return None if any(map(probes.has_module, names)) else "no package tensorrt"


def _has_gpu() -> bool:
    try:
        driver = ctypes.CDLL(DRIVER)
    except OSError:
        return False
    count = ctypes.c_int(0)
    return (
        driver.cuInit(0) == 0
        and driver.cuDeviceGetCount(ctypes.byref(count)) == 0
        and count.value > 0
    )


def _file(runtime: RuntimeName, name: str, path: Path) -> Subject:
    return Subject(runtime=runtime, precision=name, load=partial(load_engine, runtime, path))


def _torch_cuda(source: Source, precision: str) -> Subject:
    def load() -> TorchModule:
        return TorchModule(source.module, source.inputs, device="cuda", half=precision == "fp16")

    return Subject(runtime="pytorch CUDA", precision=precision, load=load)


def _torch_cpu(source: Source) -> Subject:
    def load() -> Source:
        # Its weights were released after the export; this reads them again before the first run.
        assert source.module is not None
        return source

    return Subject(runtime="pytorch", precision="fp32", load=load, is_loaded=True)
