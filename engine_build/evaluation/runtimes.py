"""Which runtimes this machine has, and why it lacks the others.

A model in PyTorch, on the CPU or on the first GPU.

What a machine can run of some networks, plans and a source model.
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
from engine_build.datasets.feed import Array, Feed

RuntimeName = Literal["onnxruntime", "onnxruntime CUDA", "pytorch", "pytorch CUDA", "tensorrt"]
DRIVER = "libcuda.so.1"


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """A runtime, and what keeps this machine from having it."""

    name: RuntimeName
    lacks: str | None
    """None: it is here."""


@dataclass(frozen=True, kw_only=True)
class Probes:
    """How the machine is asked."""

    has_module: Callable[[str], bool]
    has_gpu: Callable[[], bool]
    providers: Callable[[], Sequence[str]]
    """Execution providers of ONNX Runtime."""
    torch_has_cuda: Callable[[], bool]


def runtimes(probes: Probes | None = None) -> tuple[Runtime, ...]:
    """Every runtime we know; nothing heavy is imported unless there is a GPU."""
    asked = machine_probes() if probes is None else probes
    driver = None if asked.has_gpu() else "no NVIDIA GPU"
    torch = None if asked.has_module("torch") else "no package torch"
    onnxruntime = None if asked.has_module("onnxruntime") else "no package onnxruntime"
    return (
        Runtime(name="onnxruntime", lacks=onnxruntime),
        Runtime(
            name="onnxruntime CUDA", lacks=_first(driver, onnxruntime, lambda: _provider(asked))
        ),
        Runtime(name="pytorch", lacks=torch),
        Runtime(name="pytorch CUDA", lacks=_first(driver, torch, lambda: _torch_cuda(asked))),
        Runtime(name="tensorrt", lacks=_first(driver, None, lambda: _tensorrt(asked))),
    )


def absences(found: Sequence[Runtime]) -> str | None:
    """What is not here, in one line; None when everything is."""
    told = [f"{each.name} ({each.lacks})" for each in found if each.lacks is not None]
    return f"not on this machine: {', '.join(told)}" if told else None


def has(found: Sequence[Runtime], name: RuntimeName) -> bool:
    """Whether a runtime is here."""
    return any(each.name == name and each.lacks is None for each in found)


def machine_probes() -> Probes:
    """The machine itself."""
    return Probes(
        has_module=lambda name: importlib.util.find_spec(name) is not None,
        has_gpu=_has_gpu,
        providers=lambda: importlib.import_module("onnxruntime").get_available_providers(),
        torch_has_cuda=lambda: bool(importlib.import_module("torch").cuda.is_available()),
    )


def _first(
    driver: str | None, package: str | None, further: Callable[[], str | None]
) -> str | None:
    return driver if driver is not None else package if package is not None else further()


def _provider(asked: Probes) -> str | None:
    from engine_build.ort import CUDA_PROVIDER

    return None if CUDA_PROVIDER in asked.providers() else f"its build has no {CUDA_PROVIDER}"


def _torch_cuda(asked: Probes) -> str | None:
    return None if asked.torch_has_cuda() else "torch sees no GPU"


def _tensorrt(asked: Probes) -> str | None:
    return (
        None
        if asked.has_module("tensorrt") or asked.has_module("tensorrt_bindings")
        else "no package tensorrt"
    )


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


class Running(Protocol):
    """A network, plan or module that is loaded."""

    def rows(self, feed: Feed) -> Array:
        """float32 [rows, values]."""
        ...


class Source(Protocol):
    """The source model: a module, and the order of its inputs."""

    inputs: tuple[str, ...]

    @property
    def module(self) -> Any:
        """`torch.nn.Module` in evaluation mode, float32, on the CPU."""
        ...

    def rows(self, feed: Feed) -> Array:
        """float32 [rows, values]."""
        ...


class TorchModule:
    """A copy of a module on a device; answers are in host memory when `rows` returns, so that a
    clock counts the way there.
    """

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
        """float32 [rows, values]: each output flattened by row, one beside the other."""
        import torch

        with torch.inference_mode():
            answer = self._module(
                *(self._sent(torch.from_numpy(feed[name])) for name in self._inputs)
            )
            outputs = answer if isinstance(answer, (tuple, list)) else (answer,)
            flat = [output.reshape(len(output), -1).float().cpu().numpy() for output in outputs]
        rows: Array = flat[0] if len(flat) == 1 else np.concatenate(flat, axis=1)
        return rows

    def _sent(self, tensor: Any) -> Any:
        there = tensor.to(self._device)
        return there.half() if self._half and there.is_floating_point() else there


MODULES: dict[RuntimeName, tuple[str, ...]] = {
    "onnxruntime": ("engine_build.ort",),
    "onnxruntime CUDA": ("engine_build.ort",),
    "pytorch": (),
    "pytorch CUDA": (),
    "tensorrt": ("engine_build.tensorrt.network", "cuda.bindings.runtime"),
}
ON_CPU: tuple[RuntimeName, ...] = ("onnxruntime", "pytorch")


class Opening(Protocol):
    """Loads a network or plan."""

    def __call__(self, runtime: RuntimeName, path: Path, *, as_served: bool = True) -> Running:
        """`as_served`: as the servers load it, or as other work on the machine likes it better."""
        ...


@dataclass(frozen=True, kw_only=True)
class Contender:
    """Something that can be loaded."""

    runtime: RuntimeName
    precision: str
    load: Callable[[], Running]
    is_loaded: bool = False
    """True where `load` only hands over what somebody loaded before: what it takes to hold that is
    not measured.
    """


@dataclass(frozen=True, kw_only=True)
class Offer:
    """What there is to run; networks and plans by the name of their precision."""

    networks: Mapping[str, Path] = field(default_factory=dict)
    plans: Mapping[str, Path] = field(default_factory=dict)
    source: Source | None = None


def contenders(offer: Offer, here: Sequence[Runtime]) -> tuple[Contender, ...]:
    """What this machine can run of it, the GPU's first."""
    found = [*_plans(offer), *_on_gpu(offer), *_on_cpu(offer)]
    return tuple(each for each in found if has(here, each.runtime))


def import_runtime(runtime: RuntimeName) -> None:
    """Imports a runtime's library, so that no engine's load time holds it: a process imports it
    once for all its engines.
    """
    for module in MODULES[runtime]:
        with suppress(ImportError):
            importlib.import_module(module)
    if runtime == "tensorrt":
        # By whichever name it has: one process cannot hold both.
        with suppress(ImportError):
            tensorrt()


def opened(runtime: RuntimeName, path: Path, *, as_served: bool = True) -> Running:
    """A network or plan in a runtime. Raises SourceFault, InputRefused and NetworkRefused."""
    if runtime == "tensorrt":
        from engine_build.tensorrt import network

        # Plans measured here were compiled here, so the code inside a version-compatible one is
        # ours.
        return network.opened(path, host_code=True)
    if runtime == "onnxruntime CUDA":
        from engine_build.ort import BoundNetwork

        return BoundNetwork(path)
    from engine_build.ort import OrtNetwork

    return OrtNetwork(path, as_served=as_served)


def _plans(offer: Offer) -> list[Contender]:
    return [_opened("tensorrt", name, path) for name, path in offer.plans.items()]


def _on_gpu(offer: Offer) -> list[Contender]:
    networks = [_opened("onnxruntime CUDA", name, path) for name, path in offer.networks.items()]
    return networks + (
        [] if offer.source is None else [_torch(offer.source, "fp32"), _torch(offer.source, "fp16")]
    )


def _on_cpu(offer: Offer) -> list[Contender]:
    networks = [_opened("onnxruntime", name, path) for name, path in offer.networks.items()]
    return networks + ([] if offer.source is None else [_source(offer.source)])


def _opened(runtime: RuntimeName, name: str, path: Path) -> Contender:
    return Contender(runtime=runtime, precision=name, load=partial(opened, runtime, path))


def _torch(source: Source, precision: str) -> Contender:
    def load() -> TorchModule:
        return TorchModule(source.module, source.inputs, device="cuda", half=precision == "fp16")

    return Contender(runtime="pytorch CUDA", precision=precision, load=load)


def _source(source: Source) -> Contender:
    def load() -> Source:
        # Its weights were released after the export; asking for the module reads them again, here
        # and not in the first run.
        assert source.module is not None
        return source

    return Contender(runtime="pytorch", precision="fp32", load=load, is_loaded=True)
