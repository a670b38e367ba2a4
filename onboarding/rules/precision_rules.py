"""Rules of precision and quantization: calibration, hardware, sources with Q/DQ nodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from onboarding.dataset import Datasets
from onboarding.fault import Fault
from onboarding.model_spec import ModelSpec
from onboarding.onnx_header import OnnxHeader
from onboarding.platform import InstanceType
from onboarding.rules.cases import EngineCase
from onboarding.rules.source_rules import file_faults
from onboarding.validation import Checked
from onboarding.values import (
    EXPORT_OPSET,
    LARGEST_EXPORT_OPSET,
    LEAST_FP8,
    LEAST_INT8_OPSET,
    RequestedPrecision,
)

LEAST_COMPUTE_CAPABILITY: dict[RequestedPrecision, float] = {"bf16": 8.0, "fp8": LEAST_FP8}
FLOAT = ("fp32", "fp16", "bf16")
CPU_PRECISIONS = ("auto", "fp32", "int8", "fp8")
"""ONNX Runtime computes FP8 in float, for a CPU environment beside the GPU's."""
AMPERE = 8.0


def eight_bits_are_calibrated(model: Checked[ModelSpec], datasets: Datasets) -> Iterator[Fault]:
    """Ranges come from samples, or from the source's own nodes: in S3 the build reads those."""
    engine, onnx = model.spec.engine, model.spec.source.onnx
    if engine.precision not in ("int8", "fp8") or engine.calibration is not None:
        return
    header, in_s3 = datasets.onnx_header(onnx), onnx is not None and "://" in onnx
    if not in_s3 and not (isinstance(header, OnnxHeader) and header.is_quantized):
        yield model.fault(
            "engine.precision",
            f"{engine.precision} has no calibration data",
            way_out="add `calibration: {dataset: <text file>, samples: 256}`, or choose auto "
            "or fp16",
        )


def quantization_has_what_it_needs(
    model: Checked[ModelSpec], datasets: Datasets
) -> Iterator[Fault]:
    """INT8 by channel has an opset with axes, and a search compares layers of known ranges."""
    engine = model.spec.engine
    if engine.opset is not None and engine.opset < LEAST_INT8_OPSET and engine.precision == "int8":
        yield model.fault(
            "engine.opset",
            f"{engine.opset} has no INT8 by channel, and 'engine.precision' is int8",
            allowed=f"{LEAST_INT8_OPSET} to {LARGEST_EXPORT_OPSET}",
            way_out=f"take opset out (the export then has {EXPORT_OPSET}), or choose precision "
            "fp16 or fp32",
            beside=["engine.precision"],
        )
    if engine.sensitivity_search is not None and engine.calibration is None:
        yield model.fault(
            "engine.sensitivity_search",
            "has no calibration data to quantize with",
            way_out="add `calibration: {dataset: <file>, samples: 256}`, or leave the search out",
        )


def quantized_source_is_kept(model: Checked[ModelSpec], datasets: Datasets) -> Iterator[Fault]:
    """A network that holds Q/DQ nodes is never quantized twice, and is no float network."""
    engine, header = model.spec.engine, datasets.onnx_header(model.spec.source.onnx)
    if not isinstance(header, OnnxHeader) or not header.is_quantized:
        return
    holds = "and 'source.onnx' holds QuantizeLinear and DequantizeLinear nodes already"
    if engine.precision in FLOAT:
        yield model.fault(
            "engine.precision",
            f"is {engine.precision}, {holds}",
            allowed="auto, or int8 or fp8 as the nodes are",
            way_out="choose auto, or name the float network",
        )
    for key in ("calibration", "sensitivity_search"):
        if getattr(engine, key) is not None:
            yield model.fault(
                f"engine.{key}",
                f"is for float networks, {holds}",
                way_out=f"take {key} out, or name the float network",
            )
            return
    if engine.quantization == "calibration-cache":
        yield model.fault(
            "engine.quantization",
            f"is calibration-cache, {holds}",
            allowed="explicit",
            way_out="choose explicit, or name the float network",
        )


def reference_is_of_an_onnx_source(
    model: Checked[ModelSpec], datasets: Datasets
) -> Iterator[Fault]:
    """A checkpoint is its own reference; a file of the tree shows its change in a pull request."""
    reference = model.spec.accuracy.reference
    if reference is None:
        return
    if model.spec.source.onnx is None:
        yield model.fault(
            "accuracy.reference",
            "is for source.onnx: a checkpoint is compared with itself",
            way_out="take reference out",
        )
    else:
        yield from file_faults(model, datasets.root, "accuracy.reference.onnx", reference.onnx)


def precision_fits_the_hardware(case: EngineCase) -> Iterator[Fault]:
    """BF16 begins with compute capability 8.0, FP8 with 8.9, and CPUs gain nothing of 16 bits."""
    precision, instance = case.model.spec.engine.precision, case.instance
    least = LEAST_COMPUTE_CAPABILITY.get(precision, 0)
    if instance.is_gpu and float(instance.compute_capability) < least:
        yield case.model.fault(
            "engine.precision",
            f"{precision} needs compute capability {least}, and {case.hardware}",
            allowed=", ".join(_gpu_precisions(instance.compute_capability)),
            way_out="choose fp16, or a newer GPU",
            beside=[case.instance_path],
        )
    if not instance.is_gpu and precision not in CPU_PRECISIONS:
        yield case.model.fault(
            "engine.precision",
            f"{precision} needs a GPU, and {case.hardware}",
            allowed=", ".join(CPU_PRECISIONS),
            way_out="choose fp32 or int8 for this environment, or a GPU instance type",
            beside=[case.instance_path],
        )
    if precision == "bf16" and (case.platform.trtexec_dialect or 0) >= 11:
        # It has no precision flags, and the builder writes FP16 into networks, not BF16.
        yield case.model.fault(
            "engine.precision",
            f"bf16 needs TensorRT 10, and platform {case.platform.name} has TensorRT "
            f"{case.platform.tensorrt}",
            allowed="fp32, fp16, int8, auto",
            way_out="choose fp16, or a platform with TensorRT 10",
        )


def fp8_is_explicit(case: EngineCase) -> Iterator[Fault]:
    """A search counts INT8 layers, and caches hold INT8 ranges."""
    engine = case.model.spec.engine
    if engine.precision == "fp8" and engine.sensitivity_search is not None:
        yield case.model.fault(
            "engine.sensitivity_search",
            "is for INT8, and 'engine.precision' is fp8",
            way_out="take sensitivity_search out, or choose int8 or auto",
        )
    elif engine.precision == "fp8" and engine.quantization == "calibration-cache":
        yield case.model.fault(
            "engine.quantization",
            "calibration-cache holds INT8 ranges, and 'engine.precision' is fp8",
            allowed="explicit",
            way_out="choose explicit, or precision int8",
        )


def calibration_cache_needs_tensorrt_10(case: EngineCase) -> Iterator[Fault]:
    """TensorRT 11 has no calibrator, and ONNX Runtime never had this one."""
    platform = case.platform
    if case.model.spec.engine.quantization != "calibration-cache":
        return
    if not case.instance.is_gpu:
        because = f"needs TensorRT, and {case.hardware}"
    elif (platform.trtexec_dialect or 0) >= 11:
        because = (
            f"needs TensorRT 10, and platform {platform.name} has TensorRT {platform.tensorrt}"
        )
    else:
        return
    yield case.model.fault(
        "engine.quantization",
        f"calibration-cache {because}",
        allowed="explicit",
        way_out="choose explicit, or leave it out for the platform's mode",
        beside=[case.instance_path],
    )


def calibration_cache_is_by_entropy(case: EngineCase) -> Iterator[Fault]:
    """TensorRT chooses the INT8 layers itself, and reads caches of one calibrator alone."""
    engine = case.model.spec.engine
    mode = case.platform.quantization if engine.quantization is None else engine.quantization
    if engine.sensitivity_search is not None and mode != "explicit":
        yield case.model.fault(
            "engine.sensitivity_search",
            f"needs quantization explicit, and this engine's is {mode}",
            value=mode,
            allowed="explicit",
            way_out="leave the search out, or choose `quantization: explicit`",
            beside=["engine.quantization"],
        )
    calibration = engine.calibration
    if mode != "explicit" and calibration is not None and calibration.method != "entropy":
        yield case.model.fault(
            "engine.calibration.method",
            "is not for calibration caches",
            allowed="entropy",
            way_out="choose entropy, or `quantization: explicit`",
            beside=["engine.quantization"],
        )


def options_need_ampere(case: EngineCase) -> Iterator[Fault]:
    """Portable plans, and tensor cores that skip zeros, begin with compute capability 8.0."""
    engine = case.model.spec.engine
    if not case.instance.is_gpu or float(case.instance.compute_capability) >= AMPERE:
        return
    for key, value, allowed in (
        ("hardware_compatibility", "ampere+", "none, same_compute_capability"),
        ("sparsity", "enable", "disable"),
    ):
        if getattr(engine, key) == value:
            yield case.model.fault(
                f"engine.{key}",
                f"{value} needs compute capability {AMPERE}, and {case.hardware}",
                allowed=allowed,
                way_out="leave it out, or choose a newer GPU",
                beside=[case.instance_path],
            )


def pools_of_one_capability_need_portable_plans(case: EngineCase) -> Iterator[Fault]:
    """A model has one engine per compute capability, and its plan runs on one GPU model."""
    models: dict[str, dict[str, InstanceType]] = {}
    for instance in case.instances:
        if instance.gpu is not None:
            models.setdefault(instance.compute_capability, {}).setdefault(instance.gpu, instance)
    for capability, gpus in models.items():
        if len(gpus) > 1 and case.model.spec.engine.hardware_compatibility == "none":
            named = " and ".join(f"{instance.name} ({gpu})" for gpu, instance in gpus.items())
            yield case.model.at("endpoint.instance_pools", "engine.hardware_compatibility").fault(
                f"{named} both have compute capability {capability}, for which a model has one "
                "engine, and its plan runs on one GPU model only",
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


RULES = (
    eight_bits_are_calibrated,
    quantization_has_what_it_needs,
    quantized_source_is_kept,
    reference_is_of_an_onnx_source,
)
ENGINE_RULES = (
    precision_fits_the_hardware,
    fp8_is_explicit,
    calibration_cache_needs_tensorrt_10,
    calibration_cache_is_by_entropy,
    options_need_ampere,
    pools_of_one_capability_need_portable_plans,
)
