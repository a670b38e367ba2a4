"""Which runtimes this machine has, and why it lacks the others."""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

RuntimeName = Literal["onnxruntime", "onnxruntime CUDA", "pytorch", "pytorch CUDA", "tensorrt"]
CUDA_PROVIDER = "CUDAExecutionProvider"
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
