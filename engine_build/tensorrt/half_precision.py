"""An FP16 network: what trtexec's --fp16 used to choose layer by layer is written into the
network's own types.

TensorRT 11 builds strongly typed networks only, so the same network serves both dialects. Inputs
and outputs keep their types.
FP32 stay: operators whose sums, squares or exponents leave FP16's range (65504), what is computed
from those alone, nodes with a
constant beyond that range, and whatever becomes an integer. Normalisations of one node are among
them: in a strongly typed
network their input's type decides in which type they compute, whatever ONNX's stash_type says
(NvInfer.h 10.16,
INormalizationLayer::setComputePrecision). A mask of -3.4e38 becomes -3e4, not -inf: a few of them
can still be added. Q/DQ nodes
get FP16 scales, for which opset 19 is the first. Written here since
onnxruntime.transformers.float16 passes values between two
FP32 nodes through FP16, and gives two FP32 readers of one tensor casts of the same name.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from engine_build.errors import NetworkRefused
from engine_build.samples.feed import Array
from engine_build.tensorrt.graph_types import float_tensors, without_constant_nodes
from engine_build.tensorrt.half_writing import Writing

QDQ = ("QuantizeLinear", "DequantizeLinear")
QDQ_OPSET = 19
"""The first whose scales may be FP16."""
LARGEST = float(np.finfo(np.float16).max)
SMALLEST = float(np.finfo(np.float16).smallest_subnormal)
SENTINEL = 1e9
"""A constant as large as this says "never", and is no number to compute with."""
NEVER = 3e4

WIDE = frozenset(
    {
        "Pow",
        "Sqrt",
        "Exp",
        "Log",
        "Softplus",
        "Reciprocal",
        "CumSum",
        "Range",
        "ReduceMean",
        "ReduceSum",
        "ReduceSumSquare",
    }
    | {
        "ReduceL1",
        "ReduceL2",
        "ReduceLogSum",
        "ReduceLogSumExp",
        "ReduceProd",
        "LpNormalization",
        "NonMaxSuppression",
    }
    | {"LayerNormalization", "InstanceNormalization", "GroupNormalization", "RMSNormalization"}
)
"""Operators that stay FP32."""
HEAVY = frozenset(
    {
        "MatMul",
        "Gemm",
        "Conv",
        "ConvTranspose",
        "Einsum",
        "QuantizeLinear",
        "DequantizeLinear",
        "Softmax",
        "BatchNormalization",
    }
    | {"LSTM", "GRU", "Attention"}
)
"""Operators that are FP16 whatever they are given."""


def write_half_precision(source: Path, target: Path) -> None:
    """Writes the FP16 network of a float or Q/DQ network. Raises NetworkRefused."""
    model = half_precision(onnx.load(source))
    onnx.save(model, target)
    onnx.checker.check_model(str(target))


def half_precision(model: onnx.ModelProto) -> onnx.ModelProto:
    """The network in FP16.

    Raises NetworkRefused for control flow, and for nodes of unknown types.
    """
    plain = without_constant_nodes(at_qdq_opset(model))
    _refuse_control_flow(plain)
    floats = float_tensors(plain)
    writing = Writing(plain, floats, wide_nodes(plain, floats), half_array)
    return writing.model()


def at_qdq_opset(model: onnx.ModelProto) -> onnx.ModelProto:
    """The network itself, or at the opset whose Q/DQ nodes may have FP16 scales.

    Raises NetworkRefused.
    """
    version = max(
        (each.version for each in model.opset_import if each.domain in ("", "ai.onnx")), default=1
    )
    if version >= QDQ_OPSET or not any(node.op_type in QDQ for node in model.graph.node):
        return model
    try:
        return onnx.version_converter.convert_version(model, QDQ_OPSET)
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise NetworkRefused(
            f"the Q/DQ network of opset {version} cannot be raised to opset {QDQ_OPSET}, which FP16 scales need ({reason}); "
            f"export it at opset {QDQ_OPSET}, or ask for precision fp16."
        ) from error


def wide_nodes(model: onnx.ModelProto, floats: frozenset[str]) -> frozenset[int]:
    """The nodes that stay FP32, by their place in the graph."""
    constants = {weight.name: weight for weight in model.graph.initializer if weight.name in floats}
    beyond = {
        name
        for name, weight in constants.items()
        if _is_beyond_range(numpy_helper.to_array(weight))
    }
    wide, wide_tensors = _into_integers(model, floats), set[str]()
    for index, node in enumerate(model.graph.node):
        variable = [name for name in node.input if name in floats and name not in constants]
        inherits = (
            bool(variable) and wide_tensors.issuperset(variable) and node.op_type not in HEAVY
        )
        if node.op_type in WIDE or index in wide or inherits or not beyond.isdisjoint(node.input):
            wide.add(index)
            wide_tensors.update(node.output)
    return frozenset(wide)


def half_array(values: Array) -> Array:
    """Values as FP16: "never" stays finite, and nothing but 0 becomes 0, since it may be divided
    by.
    """
    never = np.isfinite(values) & (np.abs(values) >= SENTINEL)
    lost = (values != 0) & (np.abs(values) < SMALLEST)
    bounded = np.where(
        never, np.sign(values) * NEVER, np.where(lost, np.sign(values) * SMALLEST, values)
    )
    half: Array = bounded.astype(np.float16)
    return half


def _is_beyond_range(values: Array) -> bool:
    size = np.abs(values)
    return bool((np.isfinite(size) & (size > LARGEST) & (size < SENTINEL)).any())


def _into_integers(model: onnx.ModelProto, floats: frozenset[str]) -> set[int]:
    """Nodes whose values end as integers, such as sizes: FP16 counts to 2048 only."""
    wanted: set[str] = set()
    found: set[int] = set()
    for index in reversed(range(len(model.graph.node))):
        node = model.graph.node[index]
        is_last = (
            node.op_type == "Cast" and node.input[0] in floats and node.output[0] not in floats
        )
        if is_last or (node.op_type not in HEAVY and not wanted.isdisjoint(node.output)):
            found.add(index)
            wanted.update(name for name in node.input if name in floats)
    return found


def _refuse_control_flow(model: onnx.ModelProto) -> None:
    for node in model.graph.node:
        if any(
            attribute.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)
            for attribute in node.attribute
        ):
            raise NetworkRefused(
                f"node {node.name or node.output[0]} (operator {node.op_type}) has a network inside, which cannot be typed FP16; "
                "export the model without control flow, or ask for precision fp32."
            )
