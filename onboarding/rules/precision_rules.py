"""Rules of precision and quantization: calibration, hardware, sources with Q/DQ nodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from onboarding.fault import Fault
from onboarding.onnx_header import OnnxHeader
from onboarding.platform import InstanceType
from onboarding.rules.rule import EngineCase, ModelCase, rule
from onboarding.rules.source_rules import file_faults
from onboarding.values import (
    EXPORT_OPSET,
    LARGEST_EXPORT_OPSET,
    LEAST_FP8,
    LEAST_INT8_OPSET,
    RequestedPrecision,
)

LEAST_COMPUTE_CAPABILITY: dict[RequestedPrecision, float] = {"bf16": 8.0, "fp8": LEAST_FP8}
CPU_PRECISIONS = ("auto", "fp32", "int8", "fp8")
"""ONNX Runtime computes FP8 in float, for a CPU environment beside the GPU's."""


@rule("engine", "source")
def eight_bits_are_calibrated(case: ModelCase) -> Iterator[Fault]:
    """Ranges come from samples, or from the source's own nodes: in S3 the build reads those."""
    precision, onnx = case.spec.engine.precision, case.spec.source.onnx
    if precision not in ("int8", "fp8") or case.spec.engine.calibration is not None:
        return
    header = case.onnx_header
    in_s3 = onnx is not None and "://" in onnx
    if not in_s3 and not (isinstance(header, OnnxHeader) and header.is_quantized):
        yield case.document.at("engine", "precision").fault(
            f"'engine.precision' {precision} has no calibration data",
            way_out="add `calibration: {dataset: <text file>, samples: 256}`, or choose auto "
            "or fp16",
        )


@rule("engine")
def int8_has_an_opset_with_its_axes(case: ModelCase) -> Iterator[Fault]:
    """Under auto the build leaves INT8 out, and says so."""
    engine = case.spec.engine
    if engine.opset is not None and engine.opset < LEAST_INT8_OPSET and engine.precision == "int8":
        yield case.document.at_change(("engine", "opset"), ("engine", "precision")).fault(
            f"'engine.opset' {engine.opset} has no INT8 by channel, and 'engine.precision' is int8",
            value=engine.opset,
            allowed=f"{LEAST_INT8_OPSET} to {LARGEST_EXPORT_OPSET}",
            way_out=f"take opset out (the export then has {EXPORT_OPSET}), or choose precision "
            "fp16 or fp32",
        )


@rule("engine")
def search_needs_calibration(case: ModelCase) -> Iterator[Fault]:
    """A search compares layers whose ranges are known."""
    engine = case.spec.engine
    if engine.sensitivity_search is not None and engine.calibration is None:
        yield case.document.at("engine", "sensitivity_search").fault(
            "'engine.sensitivity_search' has no calibration data to quantize with",
            way_out="add `calibration: {dataset: <file>, samples: 256}`, or leave the search out",
        )


@rule("engine")
def precision_fits_the_gpu(case: EngineCase) -> Iterator[Fault]:
    """BF16 begins with compute capability 8.0, FP8 with 8.9."""
    precision = case.spec.engine.precision
    least = LEAST_COMPUTE_CAPABILITY.get(precision)
    if (
        least is not None
        and case.instance.is_gpu
        and float(case.instance.compute_capability) < least
    ):
        yield case.document.at_change(("engine", "precision"), case.instance_path).fault(
            f"'engine.precision' {precision} needs compute capability {least}, and "
            f"{_hardware(case)}",
            value=precision,
            allowed=", ".join(_gpu_precisions(case.instance.compute_capability)),
            way_out="choose fp16, or a newer GPU",
        )


@rule("engine")
def fp8_is_explicit(case: EngineCase) -> Iterator[Fault]:
    """A search counts INT8 layers, and caches hold INT8 ranges."""
    engine = case.spec.engine
    if engine.precision != "fp8":
        return
    if engine.sensitivity_search is not None:
        yield case.document.at("engine", "sensitivity_search").fault(
            "'engine.sensitivity_search' is for INT8, and 'engine.precision' is fp8",
            way_out="take sensitivity_search out, or choose int8 or auto",
        )
    elif engine.quantization == "calibration-cache":
        yield case.document.at("engine", "quantization").fault(
            "'engine.quantization' calibration-cache holds INT8 ranges, and 'engine.precision' "
            "is fp8",
            value=engine.quantization,
            allowed="explicit",
            way_out="choose explicit, or precision int8",
        )


@rule("engine")
def bf16_needs_tensorrt_10(case: EngineCase) -> Iterator[Fault]:
    """TensorRT 11 has no precision flags, and the builder writes FP16 into networks, not BF16."""
    if case.spec.engine.precision == "bf16" and (case.platform.trtexec_dialect or 0) >= 11:
        yield case.document.at("engine", "precision").fault(
            f"'engine.precision' bf16 needs TensorRT 10, and platform {case.platform.name} has "
            f"TensorRT {case.platform.tensorrt}",
            value="bf16",
            allowed="fp32, fp16, int8, auto",
            way_out="choose fp16, or a platform with TensorRT 10",
        )


@rule("engine")
def precision_fits_the_cpu(case: EngineCase) -> Iterator[Fault]:
    """ONNX Runtime on a CPU gains nothing from 16-bit floats."""
    precision = case.spec.engine.precision
    if not case.instance.is_gpu and precision not in CPU_PRECISIONS:
        yield case.document.at_change(("engine", "precision"), case.instance_path).fault(
            f"'engine.precision' {precision} needs a GPU, and {_hardware(case)}",
            value=precision,
            allowed=", ".join(CPU_PRECISIONS),
            way_out="choose fp32 or int8 for this environment, or a GPU instance type",
        )


@rule("engine")
def calibration_cache_needs_tensorrt_10(case: EngineCase) -> Iterator[Fault]:
    """TensorRT 11 has no calibrator, and ONNX Runtime never had this one."""
    if case.spec.engine.quantization != "calibration-cache":
        return
    if not case.instance.is_gpu:
        because = f"needs TensorRT, and {_hardware(case)}"
    elif case.platform.trtexec_dialect is not None and case.platform.trtexec_dialect >= 11:
        platform = case.platform
        because = (
            f"needs TensorRT 10, and platform {platform.name} has TensorRT {platform.tensorrt}"
        )
    else:
        return
    yield case.document.at_change(("engine", "quantization"), case.instance_path).fault(
        f"'engine.quantization' calibration-cache {because}",
        value="calibration-cache",
        allowed="explicit",
        way_out="choose explicit, or leave it out for the platform's mode",
    )


@rule("engine")
def search_needs_an_explicit_network(case: EngineCase) -> Iterator[Fault]:
    """In the other mode TensorRT chooses the INT8 layers itself."""
    engine = case.spec.engine
    mode = case.platform.quantization if engine.quantization is None else engine.quantization
    if engine.sensitivity_search is not None and mode != "explicit":
        yield case.document.at_change(
            ("engine", "sensitivity_search"), ("engine", "quantization")
        ).fault(
            f"'engine.sensitivity_search' needs quantization explicit, and this engine's is {mode}",
            value=mode,
            allowed="explicit",
            way_out="leave the search out, or choose `quantization: explicit`",
        )


@rule("engine")
def portable_plans_need_ampere(case: EngineCase) -> Iterator[Fault]:
    """TensorRT's ampere+ plans run on compute capability 8.0 and newer."""
    level = case.spec.engine.hardware_compatibility
    if (
        level == "ampere+"
        and case.instance.is_gpu
        and float(case.instance.compute_capability) < 8.0
    ):
        yield case.document.at_change(
            ("engine", "hardware_compatibility"), case.instance_path
        ).fault(
            "'engine.hardware_compatibility' ampere+ needs compute capability 8.0, and "
            f"{_hardware(case)}",
            value=level,
            allowed="none, same_compute_capability",
            way_out="leave it out, or choose a newer GPU",
        )


@rule("engine")
def sparse_kernels_need_ampere(case: EngineCase) -> Iterator[Fault]:
    """Tensor cores that skip two zeros in four begin with compute capability 8.0."""
    engine = case.spec.engine
    if (
        engine.sparsity == "enable"
        and case.instance.is_gpu
        and float(case.instance.compute_capability) < 8.0
    ):
        yield case.document.at_change(("engine", "sparsity"), case.instance_path).fault(
            f"'engine.sparsity' enable needs compute capability 8.0, and {_hardware(case)}",
            value=engine.sparsity,
            allowed="disable",
            way_out="leave it out, or choose a newer GPU",
        )


@rule("engine")
def calibration_cache_is_by_entropy(case: EngineCase) -> Iterator[Fault]:
    """Caches of the entropy calibrator are the only ones that trtexec reads."""
    engine = case.spec.engine
    mode = case.platform.quantization if engine.quantization is None else engine.quantization
    if (
        mode == "calibration-cache"
        and engine.calibration is not None
        and engine.calibration.method != "entropy"
    ):
        yield case.document.at_change(
            ("engine", "calibration", "method"), ("engine", "quantization")
        ).fault(
            "'engine.calibration.method' is not for calibration caches",
            value=engine.calibration.method,
            allowed="entropy",
            way_out="choose entropy, or `quantization: explicit`",
        )


@rule("engine")
def pools_of_one_capability_need_portable_plans(case: EngineCase) -> Iterator[Fault]:
    """A model has one engine per compute capability, and its plan runs on one GPU model."""
    models: dict[str, dict[str, InstanceType]] = {}
    for instance in case.instances:
        if instance.gpu is not None:
            models.setdefault(instance.compute_capability, {}).setdefault(instance.gpu, instance)
    for capability, gpus in models.items():
        if len(gpus) > 1 and case.spec.engine.hardware_compatibility == "none":
            named = " and ".join(f"{instance.name} ({gpu})" for gpu, instance in gpus.items())
            yield case.document.at_change(
                ("endpoint", "instance_pools"), ("engine", "hardware_compatibility")
            ).fault(
                f"{named} both have compute capability {capability}, for which a model has one "
                "engine, "
                "and its plan runs on one GPU model only",
                value="hardware_compatibility: none",
                allowed="same_compute_capability, ampere+",
                way_out="add `hardware_compatibility: same_compute_capability` to engine, or "
                "choose pools of one GPU",
            )


def _gpu_precisions(compute_capability: str) -> list[str]:
    known = get_args(RequestedPrecision)
    return [
        name for name in known if LEAST_COMPUTE_CAPABILITY.get(name, 0) <= float(compute_capability)
    ]


def _hardware(case: EngineCase) -> str:
    instance = case.instance
    return (
        f"{instance.name} is a CPU"
        if not instance.is_gpu
        else f"{instance.name} ({instance.gpu}) has {instance.compute_capability}"
    )


FLOAT = ("fp32", "fp16", "bf16")


@rule("engine", "source")
def quantized_source_is_kept(case: ModelCase) -> Iterator[Fault]:
    """A network that holds Q/DQ nodes is never quantized twice, and is no float network."""
    header, engine = case.onnx_header, case.spec.engine
    if not isinstance(header, OnnxHeader) or not header.is_quantized:
        return
    holds = "and 'source.onnx' holds QuantizeLinear and DequantizeLinear nodes already"
    if engine.precision in FLOAT:
        yield case.document.at("engine", "precision").fault(
            f"'engine.precision' is {engine.precision}, {holds}",
            value=engine.precision,
            allowed="auto, or int8 or fp8 as the nodes are",
            way_out="choose auto, or name the float network",
        )
    for key in ("calibration", "sensitivity_search"):
        if getattr(engine, key) is not None:
            yield case.document.at("engine", key).fault(
                f"'engine.{key}' is for float networks, {holds}",
                way_out=f"take {key} out, or name the float network",
            )
            return
    if engine.quantization == "calibration-cache":
        yield case.document.at("engine", "quantization").fault(
            f"'engine.quantization' is calibration-cache, {holds}",
            value=engine.quantization,
            allowed="explicit",
            way_out="choose explicit, or name the float network",
        )


@rule("accuracy", "source")
def reference_is_of_an_onnx_source(case: ModelCase) -> Iterator[Fault]:
    """A checkpoint is its own reference; a file of the tree shows its change in a pull request."""
    reference = case.spec.accuracy.reference
    if reference is None:
        return
    place = case.document.at("accuracy", "reference")
    if case.spec.source.onnx is None:
        yield place.fault(
            "'accuracy.reference' is for source.onnx: a checkpoint is compared with itself",
            way_out="take reference out",
        )
    else:
        yield from file_faults(case, place, "'accuracy.reference.onnx'", reference.onnx)
