"""The base of every value that passes between packages: frozen, keyword-only, no unknown keys."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

Precision = Literal["fp32", "fp16", "bf16", "int8", "fp8"]
ServedPrecision = Precision | Literal["as given"]
"""As given: of a repository of the user's own."""
RequestedPrecision = Literal["fp32", "fp16", "bf16", "int8", "fp8", "auto"]
Task = Literal[
    "image-classification",
    "text-classification",
    "text-embedding",
    "text-ranking",
    "token-classification",
    "tensors",
    "text-generation",
    "ensemble",
]
Server = Literal["python", "triton"]
EngineRuntime = Literal[
    "onnxruntime",
    "onnxruntime-cuda",
    "onnxruntime-tensorrt",
    "pytorch",
    "pytorch-compile",
    "tensorrt",
]
"""What executes an engine; ONNX Runtime by its execution provider."""
Runtime = EngineRuntime | Literal["triton"]
"""Triton, by whatever backends, of a repository of the user's own."""
NOT_MEASURED: Literal["not measured"] = "not measured"
"""In the place of accuracy, of a repository of the user's own."""
QuantizationMode = Literal["explicit", "calibration-cache"]
CalibrationMethod = Literal["entropy", "percentile", "max"]
PoolingMode = Literal["cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]
"""Of the tokens' vectors, in sentence-transformers' words."""
PIPELINE_BEGIN = ("Transformer", "Pooling")
PIPELINE_HEADS = ("Dense", "LayerNorm", "Normalize", "Dropout")
"""Modules of sentence-transformers that builds take: these two, then heads in any order."""
Metric = Literal["cosine", "agreement", "accuracy", "order", "relative_error"]
HardwareCompatibility = Literal["none", "ampere+", "same_compute_capability"]
Sparsity = Literal["disable", "enable"]
"""In trtexec's words."""
Rollout = Literal["canary", "linear", "rolling", "all-at-once"]
Role = Literal["variant", "shadow"]
Activation = Literal["softmax", "sigmoid", "identity"]

PYTORCH_RUNTIMES: tuple[Runtime, ...] = ("pytorch", "pytorch-compile")
BASELINE_RUNTIMES: tuple[Runtime, ...] = (
    "onnxruntime-cuda",
    "onnxruntime-tensorrt",
    *PYTORCH_RUNTIMES,
)
"""Runtimes that engines are compared with: the Python server has them alone, and their engines are
built on a CPU, whatever serves them.
"""

STARTS_BY_COMPILING: tuple[Runtime, ...] = ("onnxruntime-tensorrt", "pytorch-compile")
"""Baselines whose library compiles the engine each time that a server starts."""

TEXT_TASKS: tuple[Task, ...] = (
    "text-classification",
    "text-embedding",
    "text-ranking",
    "token-classification",
)
"""Tasks whose rows are texts: a tokenizer stands before the network."""

IMAGES: Task = "image-classification"
"""The task whose rows are JPEG or PNG files: a processor stands before the network."""

LEAST_EXPORT_OPSET, EXPORT_OPSET, LARGEST_EXPORT_OPSET = 11, 17, 20
"""Opsets of exports: the least at which torch's TorchScript exporter slices by dynamic sizes, as
every text model does; the default; the largest that it writes (torch 2.13's
ONNX_TORCHSCRIPT_EXPORTER_MAX_OPSET).
"""
LEAST_INT8_OPSET = 13
"""QuantizeLinear and DequantizeLinear have had an axis since."""
LEAST_FP8 = 8.9
"""Compute capability of the first tensor cores that multiply E4M3."""

OWN, SHARED, JOINED = "own", "shared", "joined"
"""Tags of `ModelSpec.endpoint`: an endpoint of the model's own, the name of a shared one, or a
place beside another model.
"""


def runtime_library(runtime: Runtime) -> Literal["onnxruntime", "pytorch", "tensorrt"]:
    """Return the library that a runtime is of."""
    if runtime in PYTORCH_RUNTIMES:
        return "pytorch"
    return "tensorrt" if runtime == "tensorrt" else "onnxruntime"


def is_same_build(one: str, other: str) -> bool:
    """Return True when two versions agree in every number that both name.

    TensorRT 10.6.0.26 calls itself 10.6.0 in its Python wheel. Which build wrote a plan, TensorRT
    itself compares when it loads the plan.
    """
    return all(map(str.__eq__, one.split("."), other.split(".")))


class Value(BaseModel):
    """An immutable record: two with the same fields are equal, and an unknown field is refused."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, protected_namespaces=()
    )
