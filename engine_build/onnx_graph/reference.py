"""The source model's own answers to the validation samples, kept beside the float network they
belong to.
"""

from __future__ import annotations

import hashlib
import io
from pathlib import Path

import numpy as np

from engine_build.datasets.dataset import DAMAGED
from engine_build.datasets.feed import Array
from engine_build.request import BuildRequest
from engine_build.store import Store
from onboarding.names import network_path


def reference_path(request: BuildRequest) -> str:
    """Where they lie: samples and truncation decide them, and the network's key says the source."""
    words = f"{request.validation_sha256} {request.longest_sequence}"
    return network_path(
        request.network_keys["float"],
        f"reference-{hashlib.sha256(words.encode()).hexdigest()[:16]}.npy",
    )


def kept_reference(stores: tuple[Store, ...], request: BuildRequest) -> Array | None:
    """The answers [samples, values] from the first store that has them whole."""
    for store in stores:
        data = store.read(reference_path(request))
        rows = None if data is None else _rows(data)
        if (
            rows is not None
            and rows.ndim == 2
            and len(rows) == len(request.validation)
            and np.isfinite(rows).all()
        ):
            return rows
    return None


def keep_reference(store: Store, request: BuildRequest, rows: Array, scratch: Path) -> None:
    """Keeps them in a store."""
    path = scratch / "reference.npy"
    np.save(path, rows, allow_pickle=False)
    store.upload(path, reference_path(request))


def _rows(data: bytes) -> Array | None:
    try:
        rows: Array = np.load(io.BytesIO(data), allow_pickle=False)
    except DAMAGED:
        return None
    return rows
