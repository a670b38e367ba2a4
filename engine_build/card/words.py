"""Numbers and names as the card shows them."""

from __future__ import annotations

from onboarding.manifest import AccuracyRecord, Manifest

METRICS = {
    "cosine": "cosine to the source model's output",
    "agreement": "agreement with the source model's class",
    "accuracy": "share of the source model's accuracy that is kept",
    "relative_error": "1 less the relative error to the source model's output",
}
RUNTIMES = {"onnxruntime": "ONNX Runtime", "tensorrt": "TensorRT", "pytorch": "PyTorch"}
TASKS = {
    "text-embedding": "text embedding",
    "text-classification": "text classification",
    "tensors": "tensors in, tensors out",
}


def milliseconds(value: float) -> str:
    """Three digits that count."""
    return (
        f"{value:.0f} ms"
        if value >= 100
        else f"{value:.1f} ms"
        if value >= 10
        else f"{value:.2f} ms"
    )


def plain_milliseconds(value: float) -> str:
    """The same without its unit."""
    return milliseconds(value).removesuffix(" ms")


def rate(value: float) -> str:
    """Rows a second."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def score(value: float) -> str:
    """An accuracy."""
    return f"{value:.5f}"


def percent(value: float) -> str:
    """A share."""
    return f"{value * 100:.1f}\N{NO-BREAK SPACE}%"


def mebibytes(value: float | None) -> str:
    """Memory; a dash where it was not measured."""
    return "–" if value is None else f"{value:,.0f} MiB" if value >= 10 else f"{value:.1f} MiB"


def shape(batch: int, sequence: int | None) -> str:
    """Rows, and tokens of each where there are any."""
    rows = f"{batch} row" if batch == 1 else f"{batch} rows"
    return rows if sequence is None else f"{rows} × {sequence} tokens"


def size(count: int) -> str:
    """Bytes."""
    return f"{count / 1e6:,.1f} MB" if count >= 100_000 else f"{count:,} bytes"


def runtime(name: str) -> str:
    """A runtime as its makers write it."""
    return RUNTIMES.get(name, name)


def device(manifest: Manifest) -> str:
    """What the engine runs on."""
    if manifest.compute_capability == "cpu":
        return "CPU"
    gpu = manifest.builder.gpu
    return f"{'GPU' if gpu is None else gpu}, compute capability {manifest.compute_capability}"


def interval(record: AccuracyRecord) -> str:
    """The 95 % interval of the mean."""
    return (
        "–"
        if record.mean_interval is None
        else f"{score(record.mean_interval[0])} to {score(record.mean_interval[1])}"
    )


def budget(record: AccuracyRecord) -> str:
    """What was wanted."""
    return f"mean {record.budget_mean:g}" + (
        "" if record.budget_worst is None else f", worst {record.budget_worst:g}"
    )
