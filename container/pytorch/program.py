"""torch in this Python, and a program in it: on the CPU or a GPU, as it is or compiled."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np

from container.pytorch.scan import ProgramSignature, scan_program

DeviceName = Literal["cpu", "cuda"]
NUMPY_TYPES: Mapping[str, Any] = {
    "BOOL": np.bool_,
    "INT32": np.int32,
    "INT64": np.int64,
    "FP16": np.float16,
    "FP32": np.float32,
    "FP64": np.float64,
}
"""numpy's types by KServe's names of them."""
CPU_BUILD = "+cpu"
"""What ends the version of a build of torch without CUDA, as PyTorch's own index names it."""
CACHED_SHAPES = 64
"""Variants of one program that torch.compile keeps: sizes of 0 and 1 have their own, and so may
others."""


class NoTorch(Exception):
    """This Python has no torch, or none for its GPU; the message is one sentence."""


def torch_version() -> str | None:
    """Return the version of torch as its package says it, +cpu included; None without torch."""
    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        return None


def import_torch() -> Any:
    """Import torch, which takes seconds. Raises NoTorch."""
    try:
        return importlib.import_module("torch")
    except (ImportError, OSError) as error:
        reason = " ".join(str(error).split())
        raise NoTorch(f"this Python cannot import torch ({reason})") from error


class Program:
    """A loaded program. Runs may come from several threads at once."""

    def __init__(
        self,
        path: Path,
        *,
        device: DeviceName = "cpu",
        is_compiled: bool = False,
        threads: int | None = None,
    ) -> None:
        """`threads`: of each run on the CPU; None: torch's own choice.

        Raises ProgramRefused before torch reads the file, NoTorch, and what torch raises.
        """
        file: IO[bytes]
        self.signature: ProgramSignature
        self.signature, file = scan_program(path)
        self._torch = torch = import_torch()
        if device == "cuda" and not torch.cuda.is_available():
            raise NoTorch(f"torch {torch.__version__} sees no GPU here")
        self._device, self._threads = device, threads
        self._prepared = threading.local()
        with torch.inference_mode():
            exported = torch.export.load(file)
            if device != "cpu":
                # Its constants and casts included.
                passes = importlib.import_module("torch.export.passes")
                exported = passes.move_to_device_pass(exported, device)
            # Without its guards, which the scan has seen to be none.
            module = exported.module(check_guards=False)
            for parameter in module.parameters():
                parameter.requires_grad_(False)
        if is_compiled:
            torch._dynamo.config.recompile_limit = CACHED_SHAPES
            module = torch.compile(module, dynamic=True)
        self._module = module

    def run(self, feed: Mapping[str, Any]) -> dict[str, Any]:
        """Return the outputs by name, as arrays that no later run changes.

        `feed` has an array for each input. Raises what torch raises.
        """
        torch = self._torch
        if self._threads is not None and not hasattr(self._prepared, "threads"):
            # OpenMP counts threads for each thread that begins a run.
            torch.set_num_threads(self._threads)
            self._prepared.threads = self._threads
        with torch.inference_mode():
            tensors = [
                torch.from_numpy(np.ascontiguousarray(feed[item.name])).to(self._device)
                for item in self.signature.inputs
            ]
            answer = self._module(*tensors)
            outputs = answer if isinstance(answer, tuple | list) else (answer,)
            arrays = [output.cpu().numpy() for output in outputs]
        return dict(zip(self.signature.outputs, arrays, strict=True))
