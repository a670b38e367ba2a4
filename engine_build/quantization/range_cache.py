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
from engine_build.quantization.calibration import (
    ALPHAS,
    BINS,
    ENTROPY_STRIDE,
    KEPT_ROWS,
    PERCENTILE,
    WORTH_A_MULTIPLICATION,
    Range,
    Smoothing,
)
from engine_build.store import Store, sha256_of
from onboarding.values import CalibrationMethod

PREFIX = "ranges"
RECIPE = (1, KEPT_ROWS, ALPHAS, WORTH_A_MULTIPLICATION, BINS, ENTROPY_STRIDE, PERCENTILE)
"""The first number is raised by hand when the same samples must give other ranges."""


class RangeCache:
    """Ranges in some stores, the nearest first; new ones go to the nearest."""

    def __init__(self, stores: tuple[Store, ...], folder: Path) -> None:
        self._stores = stores
        self._folder = folder

    def find(self, digest: str) -> dict[str, Range] | None:
        """Return ranges; None when no store has them whole."""
        for store in self._stores:
            data = store.read(_name(digest))
            ranges = None if data is None else _read(data)
            if ranges is not None:
                return ranges
        return None

    def keep(self, digest: str, ranges: Mapping[str, Range]) -> None:
        """Write an .npz archive to the nearest store."""
        path = self._folder / f"{digest}.npz"
        np.savez(path, **_arrays(ranges))
        self._stores[0].upload(path, _name(digest))


def ranges_digest(network: Path, samples: tuple[Sample, ...], method: CalibrationMethod) -> str:
    """Return a digest of the float network, the samples in order, the method and this recipe."""
    seen = hashlib.sha256(f"{sha256_of(network)} {method} {RECIPE!r}".encode())
    for sample in samples:
        seen.update(hashlib.sha256(repr(identity(sample)).encode()).digest())
    return seen.hexdigest()[:32]


def _name(digest: str) -> str:
    return f"{PREFIX}/{digest}.npz"


def _arrays(ranges: Mapping[str, Range]) -> dict[str, Any]:
    """`tensors` as JSON [[name, threshold, alpha or null], …], and scales by place."""
    tensors = [
        (name, each.threshold, None if each.smoothing is None else each.smoothing.alpha)
        for name, each in ranges.items()
    ]
    scales = {
        f"scales_{place}": each.smoothing.scales
        for place, each in enumerate(ranges.values())
        if each.smoothing is not None
    }
    return {"tensors": np.frombuffer(json.dumps(tensors).encode(), dtype=np.uint8), **scales}


def _read(data: bytes) -> dict[str, Range] | None:
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            tensors = json.loads(arrays["tensors"].tobytes())
            return {
                name: Range(
                    smoothing=None
                    if alpha is None
                    else Smoothing(alpha=alpha, scales=arrays[f"scales_{place}"]),
                    threshold=threshold,
                )
                for place, (name, threshold, alpha) in enumerate(tensors)
            }
    except (*DAMAGED, KeyError, TypeError):
        return None
