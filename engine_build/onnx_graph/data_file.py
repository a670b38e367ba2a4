"""The data file beside a network whose weights are too many for one ONNX file; needs no `onnx`."""

from __future__ import annotations

from pathlib import Path

DATA_NAME = "model.onnx.data"


def data_file(network: Path) -> Path | None:
    """Return the data file beside a network of a build; None where it is one file."""
    path = network.with_name(DATA_NAME)
    return path if path.is_file() else None
