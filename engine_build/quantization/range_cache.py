"""Calibrated ranges by the digest of all that decides them: no run calibrates again."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from engine_build.datasets.dataset import DAMAGED, Sample, identity
from engine_build.onnx_graph.external_data import network_sha256
from engine_build.quantization.calibration import (
    BINS,
    ENTROPY_STRIDE,
    KEPT_ROWS,
    PERCENTILE,
    Range,
)
from engine_build.quantization.rounding import DAMPING, MOST_CHANNELS
from engine_build.quantization.smoothing import (
    ALPHAS,
    COMPARED_ROWS,
    WORTH_A_MULTIPLICATION,
    WORTH_A_SHIFT,
    Smoothing,
)
from engine_build.store import Store
from onboarding.values import CalibrationMethod

RECIPE = (
    *(5, KEPT_ROWS, COMPARED_ROWS, ALPHAS, WORTH_A_MULTIPLICATION, WORTH_A_SHIFT),
    *(DAMPING, MOST_CHANNELS),
    *(BINS, ENTROPY_STRIDE, PERCENTILE),
)
"""The first number is raised by hand when the same samples must give other ranges."""


class RangeCache:
    """Ranges in some stores, the nearest first; new ones go to the nearest."""

    def __init__(self, stores: tuple[Store, ...], folder: Path) -> None:
        self._stores = stores
        self._folder = folder

    def find(self, digest: str) -> dict[str, Range] | None:
        """Return ranges; None when no store has them whole."""
        for store in self._stores:
            data = store.read(f"ranges/{digest}.npz")
            ranges = None if data is None else _read(data)
            if ranges is not None:
                return ranges
        return None

    def keep(self, digest: str, ranges: Mapping[str, Range]) -> None:
        """Write an .npz archive to the nearest store.

        `tensors` is JSON [[name, threshold, alpha or null, [output, …]], …], `scales_<index>` and
        `shifts_<index>` are smoothings, `weight_<index>_<place>` the counts of the outputs' layers.
        """
        tensors, arrays = [], dict[str, Any]()
        for index, (name, limits) in enumerate(ranges.items()):
            alpha = None
            if limits.smoothing is not None:
                alpha = limits.smoothing.alpha
                arrays[f"scales_{index}"] = limits.smoothing.scales
                if limits.smoothing.shifts is not None:
                    arrays[f"shifts_{index}"] = limits.smoothing.shifts
            for place, counts in enumerate(limits.weights.values()):
                arrays[f"weight_{index}_{place}"] = counts
            tensors.append((name, limits.threshold, alpha, list(limits.weights)))
        path = self._folder / f"{digest}.npz"
        np.savez(path, tensors=np.frombuffer(json.dumps(tensors).encode(), np.uint8), **arrays)
        self._stores[0].upload(path, f"ranges/{digest}.npz")


def ranges_digest(network: Path, samples: tuple[Sample, ...], method: CalibrationMethod) -> str:
    """Return a digest of the float network, the samples in order, the method and this recipe."""
    digest = hashlib.sha256(f"{network_sha256(network)} {method} {RECIPE!r}".encode())
    for sample in samples:
        digest.update(hashlib.sha256(repr(identity(sample)).encode()).digest())
    return digest.hexdigest()[:32]


def _read(data: bytes) -> dict[str, Range] | None:
    ranges = {}
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            tensors = json.loads(arrays["tensors"].tobytes())
            for index, (name, threshold, alpha, outputs) in enumerate(tensors):
                smoothing = None
                if alpha is not None:
                    shifts = arrays.get(f"shifts_{index}")
                    smoothing = Smoothing(
                        alpha=alpha, scales=arrays[f"scales_{index}"], shifts=shifts
                    )
                weights = {
                    output: arrays[f"weight_{index}_{place}"]
                    for place, output in enumerate(outputs)
                }
                ranges[name] = Range(smoothing=smoothing, threshold=threshold, weights=weights)
    except (*DAMAGED, KeyError, TypeError):
        return None
    return ranges
