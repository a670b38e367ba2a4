"""Numbers, names and tables as the engine card shows them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from onboarding.manifest import Manifest
from onboarding.source_spec import SourceSpec

RUNTIMES = {"onnxruntime": "ONNX Runtime", "tensorrt": "TensorRT", "pytorch": "PyTorch"}
DASH = "–"
Column = tuple[str, str, Callable[[Any], object]]
"""Its head, its class in the style sheet, and the cell of a record."""
Table = tuple[list[tuple[str, str]], list[tuple[list[object], bool]]]
"""What the macro `table` takes: heads with classes, rows of cells with whether they stand out."""


def table(
    columns: Sequence[Column],
    records: Iterable[Any],
    stands_out: Callable[[Any], bool] = lambda record: False,
) -> Table:
    """Return the table of some records, one row each."""
    rows = [([cell(item) for _, _, cell in columns], stands_out(item)) for item in records]
    return [(head, kind) for head, kind, _ in columns], rows


def score(value: float | None) -> str:
    """Format an accuracy."""
    return DASH if value is None else f"{value:.5f}"


def percent(value: float | None) -> str:
    """Format a share."""
    return DASH if value is None else f"{value * 100:.1f}\N{NO-BREAK SPACE}%"


def mebibytes(value: float | None) -> str:
    """Format memory; a dash where it was not measured."""
    return DASH if value is None else f"{value:,.0f} MiB" if value >= 10 else f"{value:.1f} MiB"


def size(count: int | None) -> str:
    """Format bytes; a dash for None."""
    if count is None:
        return DASH
    return f"{count / 1e6:,.1f} MB" if count >= 100_000 else f"{count:,} bytes"


def shape(batch: int, sequence: int | None) -> str:
    """Format rows, and the tokens of each where there are any."""
    rows = f"{batch} row" if batch == 1 else f"{batch} rows"
    return rows if sequence is None else f"{rows} × {sequence} tokens"


def runtime_name(name: str) -> str:
    """Return a runtime's name as its makers write it."""
    return RUNTIMES.get(name, name)


def device(manifest: Manifest) -> str:
    """Return what the engine runs on."""
    if manifest.compute_capability == "cpu":
        return "CPU"
    gpu = "GPU" if manifest.builder.gpu is None else manifest.builder.gpu
    return f"{gpu}, compute capability {manifest.compute_capability}"


def source_pin(source: SourceSpec) -> str:
    """Return the pinned source in one line."""
    kinds = (source.python_package, source.huggingface, source.checkpoint, source.onnx)
    name = next((kind for kind in kinds if kind is not None), "not recorded")
    folder = "" if source.path is None else f", folder {source.path}"
    return f"{name}{folder}" + ("" if source.sha256 is None else f", sha256 {source.sha256}")
