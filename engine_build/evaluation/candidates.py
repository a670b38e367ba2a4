"""How large the engines of a build are, and why it made none of a precision."""

from __future__ import annotations

from pathlib import Path

import onnx

from engine_build.evaluation.decision import Findings
from engine_build.onnx_graph.data_file import data_file
from engine_build.onnx_graph.external_data import weight_bytes
from onboarding.manifest import RuntimeRecord
from onboarding.values import Precision

PRECISIONS: tuple[Precision, ...] = ("fp32", "fp16", "int8", "fp8")
NETWORK_SUFFIX = ".onnx"


def with_sizes(record: RuntimeRecord, path: Path) -> RuntimeRecord:
    """Return a record with the bytes of an engine's files, and of a network's weights."""
    beside, weights = data_file(path), None
    if path.suffix == NETWORK_SUFFIX:
        weights = weight_bytes(onnx.load(path, load_external_data=False))
    files = (path,) if beside is None else (path, beside)
    size = sum(file.stat().st_size for file in files)
    return record.model_copy(update={"engine_bytes": size, "weights_bytes": weights})


def left_out(
    requested: str, findings: Findings, *, is_cpu: bool, is_given: bool
) -> dict[Precision, str]:
    """Return why each precision without a sound engine has none.

    `is_given`: the source's own Q/DQ nodes decide.
    """
    reasons: dict[Precision, str] = dict.fromkeys(PRECISIONS, "no candidate of this target")
    if is_given:
        reasons = dict.fromkeys(PRECISIONS, "the source's own Q/DQ nodes leave no choice")
    elif requested != "auto":
        reasons = dict.fromkeys(PRECISIONS, f"the model file asks for {requested}")
    else:
        reasons["int8"] = "the model file gives no calibration samples"
        if is_cpu:
            reasons["fp16"] = "ONNX Runtime on a CPU gains nothing by it"
        else:
            reasons["fp32"] = "auto takes it only where FP16 misses the budget"
    reasons |= findings.refused
    reasons |= findings.broken
    return {
        precision: reason
        for precision, reason in reasons.items()
        if precision not in findings.accuracy
    }
