"""What can run a model on this machine: its runtimes, and networks, plans and modules in them.

Needs numpy and what it loads, nothing else: a runtime's library is imported when it is used.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
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


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A network, plan or module in one runtime, not loaded yet."""

    runtime: RuntimeName
    precision: str
    load: Callable[[], Running]
    is_loaded: bool = False
    """True where `load` returns what is loaded already: its footprint cannot be measured."""


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


def other_subjects(networks: Mapping[str, Path], source: Source | None) -> tuple[Subject, ...]:
    """Return what this machine can run of networks, by their precision, and of the source model.

    The GPU's come first.
    """
    import onnxruntime

    from engine_build.ort import CUDA_PROVIDER

    has_cuda = CUDA_PROVIDER in onnxruntime.get_available_providers()
    on_gpu: tuple[RuntimeName, ...] = ("onnxruntime CUDA",) if has_cuda else ()
    subjects = [
        Subject(runtime=runtime, precision=name, load=partial(load_engine, runtime, path))
        for runtime in (*on_gpu, "onnxruntime")
        for name, path in networks.items()
    ]
    if source is not None:
        # Its weights were released after the export; its first run reads them again.
        own = Subject(runtime="pytorch", precision="fp32", load=lambda: source, is_loaded=True)
        subjects.append(own)
        if import_module("torch").cuda.is_available():
            subjects += [
                Subject(
                    runtime="pytorch CUDA",
                    precision=name,
                    load=partial(_copy_to_gpu, source, half=name == "fp16"),
                )
                for name in ("fp32", "fp16")
            ]
    return tuple(sorted(subjects, key=lambda subject: ORDER.index(subject.runtime)))


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


SETTLING_SECONDS = 0.2
"""After which a plan runs a shape as a busy server does; trtexec's own warm-up.

A GPU's clock follows the power that its own work takes: in turns of a few runs, FP16 of BERT-large
took 5.25 ms on an H200, in a second of its own 5.64, and served for minutes 6.1.
"""


def close(engine: Running) -> None:
    """Give an engine's memory back, where its runtime does not do so by itself."""
    method = getattr(engine, "close", None)
    if method is not None:
        method()


def _copy_to_gpu(source: Source, *, half: bool) -> TorchModule:
    return TorchModule(source.module, source.inputs, device="cuda", half=half)
