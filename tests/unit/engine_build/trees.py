"""Onboarding trees of ONNX files with arrays, and of classifiers with labelled texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from engine_build.store import sha256_of
from tests.unit.engine_build.tiny import model, write_tree

CALIBRATION, SEARCH, VALIDATION = (
    f"models/data/{name}" for name in ("calibration", "search", "validation")
)


def write_arrays(root: Path, name: str, **arrays: Any) -> None:
    """One .npz dataset."""
    path = root / f"{name}.npz"
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **arrays)


def write_tensors_tree(
    root: Path,
    network: Path,
    datasets: Mapping[str, Mapping[str, Any]],
    *,
    precision: str = "fp32",
    metric: str = "relative_error",
    profile: Mapping[str, Sequence[int]] | None = None,
    mean: float = 0.9,
    calibrated: bool = True,
    reference: Path | None = None,
) -> Path:
    """A model `tiny` of task tensors; `datasets` are calibration and validation.

    `reference` is the file of accuracy.reference.
    """
    (root / "networks").mkdir(parents=True, exist_ok=True)
    path = root / "networks/model.onnx"
    path.write_bytes(network.read_bytes())
    for name, arrays in datasets.items():
        write_arrays(root, f"models/data/{name}", **arrays)
    shapes = {"batch": [1, 2, 4]} if profile is None else profile
    profiles = [{name: list(sizes) for name, sizes in shapes.items()}]
    engine: dict[str, Any] = {"precision": precision, "optimization_profiles": profiles}
    if calibrated and precision in ("auto", "int8", "fp8"):
        count = len(next(iter(datasets["calibration"].values())))
        engine["calibration"] = {"dataset": f"{CALIBRATION}.npz", "samples": count, "method": "max"}
    accuracy: dict[str, Any] = {
        "dataset": f"{VALIDATION}.npz",
        "metric": metric,
        "budget": {"mean": mean},
    }
    if reference is not None:
        (root / "networks/float.onnx").write_bytes(reference.read_bytes())
        accuracy["reference"] = {"onnx": "networks/float.onnx", "sha256": sha256_of(reference)}
    spec = model(
        task="tensors",
        source={"onnx": "networks/model.onnx", "sha256": sha256_of(path)},
        engine=engine,
        accuracy=accuracy,
    )
    return write_tree(root, spec)


def labelled(texts: Sequence[str], labels: Sequence[str]) -> str:
    """A .tsv dataset's content."""
    return "\n".join(f"{label}\t{text}" for label, text in zip(labels, texts, strict=True))
