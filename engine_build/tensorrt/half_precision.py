"""Which tensors of a network are float, told without its weights' bytes.

Writes a network anew, each node in FP16 or FP32, with one cast where a tensor changes between
them.

An FP16 network: what trtexec's --fp16 used to choose layer by layer is written into the
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

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from engine_build.datasets.feed import Array
from engine_build.errors import NetworkRefused

SMALL = 64
"""Elements; initializers up to this size may be axes or shapes that types depend on."""


def without_constant_nodes(model: onnx.ModelProto) -> onnx.ModelProto:
    """The network with each Constant node's tensor among its initializers; the model given is
    changed.
    """
    graph = model.graph
    tensors = {node.output[0]: _constant(node) for node in graph.node if node.op_type == "Constant"}
    taken = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    others = [
        node for node in graph.node if node.op_type != "Constant" or node.output[0] not in taken
    ]
    del graph.node[:]
    graph.node.extend(others)
    graph.initializer.extend(taken.values())
    return model


def float_tensors(model: onnx.ModelProto) -> frozenset[str]:
    """Names of the FP32 tensors.

    Raises NetworkRefused for a node whose output has no type that ONNX knows.
    """
    inferred = onnx.shape_inference.infer_shapes(_skeleton(model))
    types = dict(_types(inferred.graph))
    for node in model.graph.node:
        unknown = [name for name in node.output if name and name not in types]
        if unknown:
            raise NetworkRefused(
                f"node {node.name or unknown[0]} (operator {node.op_type}) gives {unknown[0]}, whose type ONNX does not know; "
                "rewrite it with standard operators, or ask for precision fp32."
            )
    return frozenset(name for name, kind in types.items() if kind == TensorProto.FLOAT)


def _constant(node: onnx.NodeProto) -> onnx.TensorProto | None:
    attribute = node.attribute[0]
    if attribute.name == "value":
        tensor = onnx.TensorProto()
        tensor.CopyFrom(attribute.t)
        tensor.name = node.output[0]
        return tensor
    value = helper.get_attribute_value(attribute)
    kinds = {
        "value_float": np.float32,
        "value_floats": np.float32,
        "value_int": np.int64,
        "value_ints": np.int64,
    }
    kind = kinds.get(attribute.name)
    return (
        None
        if kind is None
        else numpy_helper.from_array(np.array(value, dtype=kind), node.output[0])
    )


def _skeleton(model: onnx.ModelProto) -> onnx.ModelProto:
    """The network with its large initializers as inputs: types are inferred without copying
    gigabytes.
    """
    result = onnx.ModelProto(ir_version=model.ir_version)
    result.opset_import.extend(model.opset_import)
    result.graph.name = model.graph.name
    result.graph.node.extend(model.graph.node)
    result.graph.output.extend(model.graph.output)
    large = [
        weight for weight in model.graph.initializer if np.prod(weight.dims, dtype=np.int64) > SMALL
    ]
    declared = {weight.name for weight in model.graph.initializer}
    result.graph.input.extend(each for each in model.graph.input if each.name not in declared)
    result.graph.input.extend(
        helper.make_tensor_value_info(each.name, each.data_type, each.dims) for each in large
    )
    names = {weight.name for weight in large}
    result.graph.initializer.extend(
        weight for weight in model.graph.initializer if weight.name not in names
    )
    return result


def _types(graph: onnx.GraphProto) -> Iterator[tuple[str, int]]:
    for weight in graph.initializer:
        yield weight.name, weight.data_type
    for value in (*graph.input, *graph.value_info, *graph.output):
        if value.type.tensor_type.elem_type:
            yield value.name, value.type.tensor_type.elem_type


HALF, FULL = TensorProto.FLOAT16, TensorProto.FLOAT
SUFFIX = {HALF: "_fp16", FULL: "_fp32"}
FULL_INPUTS = {"Resize": (2,)}
"""Inputs that ONNX allows in FP32 only, by operator."""


class Writing:
    """One network being written; `wide` are the places of the nodes that stay FP32."""

    def __init__(
        self,
        source: onnx.ModelProto,
        floats: frozenset[str],
        wide: frozenset[int],
        half_array: Callable[[Array], Array],
    ) -> None:
        self._source = source
        self._floats = floats
        self._wide = wide
        self._half_array = half_array
        self._constants = {weight.name: weight for weight in source.graph.initializer}
        self._kinds = {each.name: FULL for each in source.graph.input}
        self._outputs = {each.name for each in source.graph.output}
        self._nodes: list[onnx.NodeProto] = []
        self._written: dict[str, onnx.TensorProto] = {}
        self._casts: dict[tuple[str, int], str] = {}

    def model(self) -> onnx.ModelProto:
        """The network written."""
        for index, node in enumerate(self._source.graph.node):
            self._write(node, FULL if index in self._wide else HALF)
        for name in self._source.graph.output:
            if self._kinds.get(name.name) == HALF:
                self._nodes.append(
                    helper.make_node(
                        "Cast",
                        [name.name + SUFFIX[HALF]],
                        [name.name],
                        name=f"{name.name}_as{SUFFIX[FULL]}",
                        to=FULL,
                    )
                )
        return self._assembled()

    def _write(self, node: onnx.NodeProto, kind: int) -> None:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        full = FULL_INPUTS.get(node.op_type, ())
        copy.input[:] = [
            self._read(name, FULL if place in full else kind)
            for place, name in enumerate(node.input)
        ]
        for place, name in enumerate(node.output):
            if name in self._floats:
                self._kinds[name] = kind
                copy.output[place] = self._name(name)
        if kind == HALF:
            self._retype(copy, node)
        self._nodes.append(copy)

    def _read(self, name: str, kind: int) -> str:
        """The name under which a node reads a tensor in the type that it needs."""
        if name in self._constants:
            return self._constant(name, kind)
        if name not in self._floats or self._kinds[name] == kind:
            return self._name(name)
        if (name, kind) not in self._casts:
            self._casts[name, kind] = cast = f"{name}_as{SUFFIX[kind]}"
            self._nodes.append(
                helper.make_node("Cast", [self._name(name)], [cast], name=cast, to=kind)
            )
        return self._casts[name, kind]

    def _constant(self, name: str, kind: int) -> str:
        weight = self._constants[name]
        written = name + SUFFIX[HALF] if name in self._floats and kind == HALF else name
        if written not in self._written:
            values = self._half_array(numpy_helper.to_array(weight)) if written != name else None
            self._written[written] = (
                weight if values is None else numpy_helper.from_array(values, written)
            )
        return written

    def _name(self, name: str) -> str:
        """A float output of the network keeps its name for the cast that ends it."""
        return (
            name + SUFFIX[HALF] if name in self._outputs and self._kinds.get(name) == HALF else name
        )

    def _retype(self, copy: onnx.NodeProto, node: onnx.NodeProto) -> None:
        """Attributes that say FP32."""
        for attribute in copy.attribute:
            if (
                attribute.name in ("to", "dtype", "output_dtype")
                and attribute.i == FULL
                and node.output[0] in self._floats
            ):
                attribute.i = HALF
            if attribute.type == onnx.AttributeProto.TENSOR and attribute.t.data_type == FULL:
                attribute.t.CopyFrom(
                    numpy_helper.from_array(self._half_array(numpy_helper.to_array(attribute.t)))
                )

    def _assembled(self) -> onnx.ModelProto:
        source = self._source
        result = onnx.ModelProto(ir_version=source.ir_version, producer_name=source.producer_name)
        result.opset_import.extend(source.opset_import)
        result.metadata_props.extend(source.metadata_props)
        result.graph.name = source.graph.name
        declared = set(self._constants)
        result.graph.input.extend(each for each in source.graph.input if each.name not in declared)
        result.graph.output.extend(source.graph.output)
        result.graph.node.extend(self._nodes)
        result.graph.initializer.extend(self._written.values())
        return result


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
