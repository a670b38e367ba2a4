"""Our Python server whose engine is PyTorch: `python -m tests.gpu.torch_server serve`.

The archive gives tokenizer and limits; its network is not read. TORCH_MODEL: a text network's
name in `tests.gpu.networks`; TORCH_SIZES: JSON that replaces its sizes. TORCH_DEVICE: cuda or cpu.
TORCH_PRECISION: fp16, with torch's fused attention, or else FP32. TORCH_COMPILED: true for
torch.compile, or else eager. Slots, one by default, share the module.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from container.archive import EngineArchive
from container.server.app import main
from container.server.engines.engine import Costs, LinearCosts, longest_sequence
from container.server.engines.tokens import Tokens, pad_rows
from container.server.settings import Settings
from container.server.types import Array, Arrays
from tests.gpu.networks import make


class TorchEngine:
    """A module, and rows padded to the longest of a batch."""

    inline_rows = 0
    sequence_buckets: tuple[int, ...] | None = None

    def __init__(self, archive: EngineArchive, slots: int) -> None:
        self.slots = slots
        self._device = os.environ["TORCH_DEVICE"]
        self._module, self._inputs = torch_module(self._device)
        self.max_rows = archive.manifest.max_batch_size
        self._longest = longest_sequence(archive.manifest.optimization_profiles) or 1

    def prepare(self, rows: Sequence[Tokens]) -> list[Array]:
        """Return the inputs in the module's order."""
        feed = pad_rows(rows, shape=(len(rows), max(1, *map(len, rows))))
        return [feed[name].astype(np.int64, copy=False) for name in self._inputs]

    def run(self, prepared: Sequence[Array], slot: int) -> Arrays:
        """Return one array, float32 [rows, values]."""
        with torch.inference_mode():
            tensors = [torch.from_numpy(array).to(self._device) for array in prepared]
            return (self._module(*tensors).float().cpu().numpy(),)

    def warm_up(self) -> Costs:
        """Run the largest batch, and fit costs to one row and to all rows of the longest text."""
        sizes = (1, self.max_rows)
        for rows in sizes:
            self._seconds(rows)
        first, last = map(self._seconds, sizes)
        slope = max(0.0, last - first) / (max(1, self.max_rows - 1) * self._longest)
        fixed = max(0.0, first - slope * self._longest)
        return LinearCosts(fixed_seconds=fixed, seconds_per_token=slope)

    def warm_up_inline(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Forget the module."""
        del self._module

    def _seconds(self, rows: int) -> float:
        prepared = self.prepare([Tokens(np.zeros(self._longest, np.int32))] * rows)
        begin = time.perf_counter()
        self.run(prepared, 0)
        return time.perf_counter() - begin


def torch_module(device: str) -> tuple[Any, tuple[str, ...]]:
    """Return the module that the environment names, on a device, and its inputs."""
    made = make(os.environ["TORCH_MODEL"], json.loads(os.environ.get("TORCH_SIZES", "{}")))
    module_on_device = made.module.to(device)
    if os.environ.get("TORCH_PRECISION") == "fp16":
        module_on_device.half()
        module_on_device.encoder.set_attn_implementation("sdpa")
    if os.environ.get("TORCH_COMPILED") == "true":
        module_on_device = torch.compile(module_on_device, dynamic=True)
    return module_on_device, made.inputs


def open_engine(archive: EngineArchive, settings: Settings) -> TorchEngine:
    """Return the engine of an archive, whatever network it holds."""
    return TorchEngine(archive, settings.slots or 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], open_engine))
