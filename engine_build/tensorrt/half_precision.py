"""Writes an FP16 network: what trtexec's --fp16 chooses by layer is written into its types.

TensorRT 11 builds strongly typed networks only, so the same network serves both dialects. Inputs
and outputs keep their types. FP32 stay: operators whose sums, squares or exponents leave FP16's
range (65504), loops and branches with all that is in them, what is computed from those alone, nodes
with a constant beyond that range, and whatever becomes an integer. Matrix products of INT8 are FP32
with their dequantize nodes, and cast behind (`int8_products`). A LayerNormalization is FP16: its
kernels sum in FP32, and in FP32 it cost 7 to 9 % of a whole BERT on an H100. What scales and shifts
a tensor for a quantize node is FP16 all the same: in FP32 it would hold the residual stream in FP32
beside it. A mask of -3.4e38 becomes -3e4, not -inf: a few of them can still
be added. Q/DQ nodes get FP16 scales, for
which opset 19 is the first.

onnxruntime.transformers.float16 is not used: it passes values between two FP32 nodes through FP16,
and gives two FP32 readers of one tensor casts of the same name.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from engine_build.datasets.dataset import Array
from engine_build.onnx_graph.external_data import (
    bodies,
    copy_network,
    load_model,
    model_tensors,
    save_model,
)
from engine_build.onnx_graph.onnx_file import QDQ, inline_functions
from engine_build.tensorrt.graph_types import (
    at_qdq_opset,
    float_tensors,
    outer_reads,
    rename_outer,
    without_constant_nodes,
    without_integer_biases,
)

PRODUCTS = ("MatMul", "Gemm")
FLOAT8 = frozenset(
    (
        *(TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E4M3FNUZ),
        *(TensorProto.FLOAT8E5M2, TensorProto.FLOAT8E5M2FNUZ),
    )
)
LARGEST = float(np.finfo(np.float16).max)
SMALLEST = float(np.finfo(np.float16).smallest_subnormal)
SENTINEL = 1e9
"""A constant as large as this stands for infinity, and is no number to compute with."""
NEVER = 3e4
HALF, FULL = TensorProto.FLOAT16, TensorProto.FLOAT
SUFFIX = {HALF: "_fp16", FULL: "_fp32"}
FULL_INPUTS = {"Resize": (2,)}
"""Inputs that ONNX allows in FP32 only, by operator."""
WIDE = frozenset(
    (
        *("Pow", "Sqrt", "Exp", "Log", "Softplus", "Reciprocal", "CumSum", "Range"),
        *("ReduceMean", "ReduceSum", "ReduceSumSquare", "ReduceL1", "ReduceL2", "ReduceLogSum"),
        *("ReduceLogSumExp", "ReduceProd", "LpNormalization", "NonMaxSuppression"),
        *("InstanceNormalization", "GroupNormalization", "RMSNormalization"),
    )
)
"""Operators that stay FP32."""
HEAVY = frozenset(
    (
        *("MatMul", "Gemm", "Conv", "ConvTranspose", "Einsum", *QDQ, "Softmax"),
        *("LayerNormalization", "BatchNormalization", "LSTM", "GRU", "Attention"),
    )
)
"""Operators that are FP16 whatever their inputs are."""


def write_half_precision(
    source: Path, target: Path, plugins: Collection[str] = (), full: Collection[str] = ()
) -> None:
    """Write the FP16 network of a float or Q/DQ network. Raises NetworkRefused.

    `plugins` are operators of TensorRT plugins, which read and write FP32, `full` nodes that stay
    FP32, by name or first output.
    """
    model = half_precision(load_model(source), plugins, full)
    save_model(model, target)
    onnx.checker.check_model(str(target))


def half_precision(
    model: onnx.ModelProto, plugins: Collection[str] = (), full: Collection[str] = ()
) -> onnx.ModelProto:
    """Return the network in FP16.

    Loops, branches, operators of `plugins` and the nodes `full` stay FP32. Raises NetworkRefused
    for nodes of unknown types.
    """
    model = inline_functions(model, plugins)
    plain = without_integer_biases(without_constant_nodes(at_qdq_opset(model)))
    floats = float_tensors(plain)
    return _Writer(plain, floats, wide_nodes(plain, floats, full)).model()


def int8_products(model: onnx.ModelProto) -> frozenset[int]:
    """Return each matrix product of two dequantized tensors, with its dequantize nodes.

    A kernel that TensorRT fuses converts the INT32 sums of a product to the product's type before
    it scales them: in FP16 they end at 65504, and 384 products of INT8 reach 6 million
    (docs/decisions, 43).
    """
    nodes = model.graph.node
    is_fp8 = {tensor.name for tensor in model.graph.initializer if tensor.data_type in FLOAT8}
    is_fp8 |= {
        node.output[0]
        for node in nodes
        if node.op_type == QDQ[0] and not is_fp8.isdisjoint(node.input[1:])
    }
    dequantized = {
        node.output[0]: index
        for index, node in enumerate(nodes)
        if node.op_type == QDQ[1] and is_fp8.isdisjoint(node.input)
    }
    products = set[int]()
    for index, node in enumerate(nodes):
        if node.op_type in PRODUCTS and dequantized.keys() >= set(node.input[:2]):
            products.update((index, *(dequantized[name] for name in node.input[:2])))
    return frozenset(products)


def wide_nodes(
    model: onnx.ModelProto, floats: frozenset[str], full: Collection[str] = ()
) -> frozenset[int]:
    """Return the nodes that stay FP32, by their index in the graph; `full` are among them.

    What reads nothing but INT8 products is not among them.
    """
    constants = {weight.name: weight for weight in model.graph.initializer if weight.name in floats}
    beyond = {name for name, weight in constants.items() if _is_beyond_range(weight)}
    wide, wide_tensors = _into_integers(model, floats), set[str]()
    products = int8_products(model)
    smoothing = _before_quantization(model, frozenset(constants))
    functions = {(function.domain, function.name) for function in model.functions}
    # An output of the network has another name in the network in FP16.
    full_outputs = {*full, *(name.removesuffix(SUFFIX[HALF]) for name in full)}
    for index, node in enumerate(model.graph.node):
        variable = [name for name in node.input if name in floats and name not in constants]
        is_half = node.op_type in HEAVY or index in smoothing
        follows = variable and wide_tensors.issuperset(variable) and not is_half
        is_function = (node.domain, node.op_type) in functions
        stays = is_function or node.op_type in WIDE or any(bodies(node))
        stays = stays or node.name in full or not full_outputs.isdisjoint(node.output)
        if stays or index in wide or follows or not beyond.isdisjoint(node.input):
            wide.add(index)
            wide_tensors.update(node.output)
    return frozenset(wide | products)


def _before_quantization(model: onnx.ModelProto, constants: frozenset[str]) -> frozenset[int]:
    """Return each Mul and Add of a constant whose result is quantized, and nothing else."""
    nodes = list(enumerate(model.graph.node))
    others = {output.name for output in model.graph.output}
    found = set[int]()
    for index, node in reversed(nodes):
        is_smoothing = node.op_type in ("Mul", "Add") and not constants.isdisjoint(node.input)
        if is_smoothing and others.isdisjoint(node.output):
            found.add(index)
        elif node.op_type != "QuantizeLinear":
            others.update(node.input)
    return frozenset(found)


def half_array(values: Array) -> Array:
    """Return values as FP16: masks stay finite, and only 0 becomes 0, since it may be a divisor."""
    lost = (values != 0) & (np.abs(values) < SMALLEST)
    half: Array = np.where(lost, np.sign(values) * SMALLEST, finite_mask(values)).astype(np.float16)
    return half


def finite_mask(values: Array) -> Array:
    """Return values whose finite stand-ins for infinity are within FP16's range."""
    never = np.isfinite(values) & (np.abs(values) >= SENTINEL)
    bounded: Array = np.where(never, np.sign(values) * NEVER, values).astype(values.dtype)
    return bounded


def write_weakly_typed(source: Path, target: Path) -> None:
    """Write the float network from which TensorRT chooses types: masks are those of FP16.

    A mask of -3.4e38 would be calibrated to an infinite scale, and be -inf in FP16.
    """
    model = without_constant_nodes(load_model(source))
    has_changed = False
    for _, tensor in model_tensors(model):
        if tensor.data_type == FULL:
            values = numpy_helper.to_array(tensor)
            bounded = finite_mask(values)
            if not np.array_equal(values, bounded, equal_nan=True):
                tensor.CopyFrom(numpy_helper.from_array(bounded, tensor.name))
                has_changed = True
    if has_changed:
        save_model(model, target)
    else:
        copy_network(source, target)


class _Writer:
    """Writes a network anew, with one cast where a tensor changes between FP16 and FP32.

    `wide` are the indices of the nodes that stay FP32.
    """

    def __init__(
        self, source: onnx.ModelProto, floats: frozenset[str], wide: frozenset[int]
    ) -> None:
        self._source = source
        self._floats = floats
        self._wide = wide
        self._constants = {weight.name: weight for weight in source.graph.initializer}
        self._kinds = {value.name: FULL for value in source.graph.input}
        self._outputs = {value.name for value in source.graph.output}
        self._nodes: list[onnx.NodeProto] = []
        self._written: dict[str, onnx.TensorProto] = {}
        self._casts: dict[tuple[str, int], str] = {}

    def model(self) -> onnx.ModelProto:
        for index, node in enumerate(self._source.graph.node):
            self._write(node, FULL if index in self._wide else HALF)
        for output in self._source.graph.output:
            name = output.name
            if self._kinds.get(name) == HALF:
                self._cast(self._name(name), name, f"{name}_output{SUFFIX[FULL]}", FULL)
        source = self._source
        result = onnx.ModelProto(ir_version=source.ir_version, producer_name=source.producer_name)
        result.opset_import.extend(source.opset_import)
        result.metadata_props.extend(source.metadata_props)
        result.functions.extend(source.functions)
        result.graph.name = source.graph.name
        result.graph.input.extend(
            value for value in source.graph.input if value.name not in self._constants
        )
        result.graph.output.extend(source.graph.output)
        result.graph.node.extend(self._nodes)
        result.graph.initializer.extend(self._written.values())
        return result

    def _write(self, node: onnx.NodeProto, kind: int) -> None:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        full = FULL_INPUTS.get(node.op_type, ())
        # The counts of a tensor are of its FP16 scale, those of a weight of its FP32 scale.
        is_rounded = (
            kind == FULL and node.op_type == QDQ[1] and node.input[0] not in self._constants
        )
        for index, name in enumerate(node.input):
            if is_rounded and index == 1 and name in self._constants:
                copy.input[index] = self._half_scale(name)
            else:
                copy.input[index] = self._read(name, FULL if index in full else kind)
        for index, name in enumerate(node.output):
            if name in self._floats:
                self._kinds[name] = kind
                copy.output[index] = self._name(name)
        if kind == HALF:
            self._retype(copy, node)
        rename_outer(copy, {name: self._read(name, FULL) for name in outer_reads(node)})
        self._nodes.append(copy)

    def _read(self, name: str, kind: int) -> str:
        """Return the name under which a node reads a tensor in the type that it needs."""
        if name in self._constants:
            return self._read_constant(name, kind)
        if name not in self._floats or self._kinds[name] == kind:
            return self._name(name)
        if (name, kind) not in self._casts:
            self._casts[name, kind] = cast = f"{name}_as{SUFFIX[kind]}"
            self._cast(self._name(name), cast, cast, kind)
        return self._casts[name, kind]

    def _cast(self, tensor: str, output: str, node: str, kind: int) -> None:
        self._nodes.append(helper.make_node("Cast", [tensor], [output], name=node, to=kind))

    def _read_constant(self, name: str, kind: int) -> str:
        weight = self._constants[name]
        if name not in self._floats or kind != HALF:
            self._written.setdefault(name, weight)
            return name
        half = name + SUFFIX[HALF]
        if half not in self._written:
            self._written[half] = _half_tensor(weight, half)
        return half

    def _half_scale(self, scale: str) -> str:
        """Return an FP32 scale that equals the FP16 scale of the quantize node before it."""
        name = f"{scale}_of_fp16"
        if name not in self._written:
            rounded: Array = half_array(numpy_helper.to_array(self._constants[scale])).astype(
                np.float32
            )
            self._written[name] = numpy_helper.from_array(rounded, name)
        return name

    def _name(self, name: str) -> str:
        """Return a tensor's name; a float output keeps its own for the cast that ends it."""
        is_half_output = name in self._outputs and self._kinds.get(name) == HALF
        return name + SUFFIX[HALF] if is_half_output else name

    def _retype(self, copy: onnx.NodeProto, node: onnx.NodeProto) -> None:
        """Change attributes that say FP32."""
        is_float = node.output[0] in self._floats
        for attribute in copy.attribute:
            is_type = attribute.name in ("to", "dtype", "output_dtype")
            if is_type and attribute.i == FULL and is_float:
                attribute.i = HALF
            if attribute.type == onnx.AttributeProto.TENSOR and attribute.t.data_type == FULL:
                attribute.t.CopyFrom(_half_tensor(attribute.t))
        if copy.op_type == "ConstantOfShape" and not copy.attribute:
            # Without a value it fills with FP32 zeros.
            zero = numpy_helper.from_array(np.zeros(1, np.float16))
            copy.attribute.append(helper.make_attribute("value", zero))


def _half_tensor(tensor: onnx.TensorProto, name: str | None = None) -> onnx.TensorProto:
    return numpy_helper.from_array(half_array(numpy_helper.to_array(tensor)), name)


def _is_beyond_range(tensor: onnx.TensorProto) -> bool:
    size = np.abs(numpy_helper.to_array(tensor))
    return bool((np.isfinite(size) & (size > LARGEST) & (size < SENTINEL)).any())


def _into_integers(model: onnx.ModelProto, floats: frozenset[str]) -> set[int]:
    """Return nodes whose values become integers, such as sizes: FP16 counts to 2048 only."""
    tensors: set[str] = set()
    nodes: set[int] = set()
    for index in reversed(range(len(model.graph.node))):
        node = model.graph.node[index]
        is_cast = node.op_type == "Cast" and node.input[0] in floats
        ends = is_cast and node.output[0] not in floats
        if ends or (node.op_type not in HEAVY and not tensors.isdisjoint(node.output)):
            nodes.add(index)
            tensors.update(name for name in node.input if name in floats)
    return nodes
