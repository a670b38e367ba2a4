"""A model in PyTorch, on the CPU or on the first GPU."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Literal, Protocol

import numpy as np

from engine_build.samples.feed import Array, Feed

Device = Literal["cpu", "cuda"]


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
        self, module: Any, inputs: Sequence[str], *, device: Device, half: bool = False
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
