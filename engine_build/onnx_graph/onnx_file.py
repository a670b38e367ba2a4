"""An ONNX file: read and checked, its opset within what TensorRT's parser documents.

Sources: onnx-tensorrt docs/operators.md of releases 10.0-GA ("opset 9 to opset 20") and 10.15
("opset 9 to opset 24"); TensorRT 11's ONNX Opset Guide (minimum 9, maximum 25). A release between
two rows has the older one's range.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from engine_build.datasets.dataset import Array
from engine_build.errors import NetworkRefused, SourceFault, one_line
from engine_build.onnx_graph.external_data import (
    external_files,
    load_weights,
    model_tensors,
    refuse_large,
    without_data,
)
from onboarding.manifest import TensorRecord
from onboarding.platform import ServingPlatform
from onboarding.values import LEAST_INT8_OPSET

RANGES: tuple[tuple[tuple[int, int], tuple[int, int]], ...] = (
    ((10, 0), (9, 20)),
    ((10, 15), (9, 24)),
    ((11, 0), (9, 25)),
)
"""(TensorRT release, (least opset, largest opset)), the oldest release first."""


def opset_range(tensorrt: str) -> tuple[int, int] | None:
    """Return the least and largest opset of an exact TensorRT build, such as 10.16.1.11.

    None for releases older than the table.
    """
    major, minor = (*map(int, tensorrt.split(".")[:2]), 0)[:2]
    return next(
        (allowed for release, allowed in reversed(RANGES) if release <= (major, minor)), None
    )


def refuse_opset(opset: int, platform: ServingPlatform, *, may_be_int8: bool = False) -> None:
    """Raise NetworkRefused for an opset beyond the platform's TensorRT, or without INT8."""
    allowed = None if platform.tensorrt is None else opset_range(platform.tensorrt)
    if allowed is not None and not allowed[0] <= opset <= allowed[1]:
        raise NetworkRefused(
            f"the network has opset {opset}, and TensorRT {platform.tensorrt} of platform "
            f"{platform.name} reads {allowed[0]} to {allowed[1]}; export it with opset 17, or "
            "convert it with onnx.version_converter.convert_version(model, 17)."
        )
    if may_be_int8 and opset < LEAST_INT8_OPSET:
        raise NetworkRefused(
            f"the network has opset {opset}, and INT8 needs {LEAST_INT8_OPSET} or newer; export it "
            "with opset 17, or ask for precision fp16 or fp32."
        )


QDQ = ("QuantizeLinear", "DequantizeLinear")
DATATYPES = {
    "FLOAT": "FP32",
    "FLOAT16": "FP16",
    "DOUBLE": "FP64",
    "BFLOAT16": "BF16",
    "STRING": "BYTES",
}
"""KServe v2 names where they differ from ONNX's."""


WAYS_OUT = {
    "Field 'shape' of 'type' is required": (
        "give each input and output its axes: export it again, or for outputs alone save "
        "onnx.shape_inference.infer_shapes(model)"
    ),
    "ir_version": "set model.ir_version to that number or less with the onnx package, and save it",
    "in initializer but not in graph input": (
        "files of ir_version 3 list weights as inputs: set model.ir_version to 4, and save it"
    ),
    "initializer name is not unique": (
        "two weights have one name: rename the second one, or remove it if it is the same, with "
        "the onnx package"
    ),
    "topologically sorted": (
        "a node reads a tensor that no node before it makes: export it again, or sort its nodes"
    ),
}
"""By what ONNX's checker says of a file."""


def read_model(path: Path, *, weights: bool = True) -> onnx.ModelProto:
    """Return a parsed and checked ONNX file. Raises SourceFault.

    `weights`: those in data files beside it are read into memory.
    """
    refuse_large(path.name, path.stat().st_size)
    try:
        model = onnx.load(path, load_external_data=False)
        names = external_files(path, model)
        # By path: the checker of a loaded model would hold two copies of it.
        onnx.checker.check_model(without_data(model) if names else str(path))
        if weights and names:
            load_weights(model, path.parent)
    except (SourceFault, OSError):
        raise
    except Exception as error:
        reason = one_line(error)
        way_out = next(
            (way_out for words, way_out in WAYS_OUT.items() if words in reason),
            "it may be damaged or cut short: export it again",
        )
        raise SourceFault(f"{path.name} is no valid ONNX file ({reason}); {way_out}.") from error
    return model


def opset(model: onnx.ModelProto) -> int:
    """Return the version of ONNX's own operators that a model is written in."""
    return next(
        (int(item.version) for item in model.opset_import if item.domain in ("", "ai.onnx")), 0
    )


def qdq_node_count(model: onnx.ModelProto) -> int:
    """Return the number of QuantizeLinear and DequantizeLinear nodes."""
    return sum(node.op_type in QDQ for node in model.graph.node)


def tensor_records(tensors: Iterable[onnx.ValueInfoProto]) -> tuple[TensorRecord, ...]:
    """Return names, KServe datatypes and shapes of inputs or outputs; -1 is a dynamic axis."""
    return tuple(
        TensorRecord(
            name=tensor.name,
            datatype=_datatype(tensor.type),
            shape=tuple(
                dim.dim_value if dim.HasField("dim_value") else -1
                for dim in tensor.type.tensor_type.shape.dim
            ),
        )
        for tensor in tensors
    )


def refuse_broken_weights(model: onnx.ModelProto) -> None:
    """Refuse NaN and Inf in weights by name: their engines look plausible."""
    for name, weight in model_tensors(model):
        try:
            values: Array = numpy_helper.to_array(weight)
        except (KeyError, TypeError, ValueError) as error:
            raise SourceFault(
                f"weight {name} cannot be read ({error}); the file may be damaged: export it again."
            ) from error
        if values.dtype.kind != "f" or np.isfinite(values).all():
            continue
        # Attention adds masks of zeros and negative infinities to its scores.
        if not ((values == 0) | np.isneginf(values)).all():
            raise SourceFault(f"weight {name} holds NaN or Inf; train or export the source again.")


def _datatype(kind: onnx.TypeProto) -> str:
    if kind.WhichOneof("value") != "tensor_type":
        return str(kind.WhichOneof("value"))
    number, names = kind.tensor_type.elem_type, onnx.TensorProto.DataType
    name = str(names.Name(number)) if number in names.values() else f"number {number}"
    return DATATYPES.get(name, name)
