"""Numbers, names and table columns as the engine card shows them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onboarding.manifest import Manifest
from onboarding.model_spec import SourceSpec

RUNTIMES = {"onnxruntime": "ONNX Runtime", "tensorrt": "TensorRT", "pytorch": "PyTorch"}
Cells = Sequence[object]
Markup = Callable[[str], str]
"""A macro of the templates: `badge` or `code`."""


def score(value: float) -> str:
    """Format an accuracy."""
    return f"{value:.5f}"


def percent(value: float) -> str:
    """Format a share."""
    return f"{value * 100:.1f}\N{NO-BREAK SPACE}%"


def mebibytes(value: float | None) -> str:
    """Format memory; a dash where it was not measured."""
    return "–" if value is None else f"{value:,.0f} MiB" if value >= 10 else f"{value:.1f} MiB"


def size(count: int) -> str:
    """Format bytes."""
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


def columns(left: str, numbers: str, right: str = "") -> list[tuple[str, str]]:
    """Return table columns from their heads, which are separated by |; numbers stand right."""
    return [
        (head, kind)
        for heads, kind in ((left, ""), (numbers, "number"), (right, ""))
        for head in (heads.split("|") if heads else ())
    ]
