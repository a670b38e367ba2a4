"""Types of a network's tensors, inferred without copying its weights; the opset of Q/DQ nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from engine_build.errors import NetworkRefused, one_line
from engine_build.onnx_graph.external_data import bodies
from engine_build.onnx_graph.onnx_file import QDQ, opset
from engine_build.onnx_graph.refusal import RUNTIME_DOMAIN

QDQ_OPSET = 19
"""The first whose scales may be FP16."""
LARGEST_CONVERTED_BYTES = 1 << 20
"""Of a weight that the conversion to another opset may read, as it does axes and shapes."""
SMALL = 64
"""Elements; initializers up to this size may be axes or shapes that types depend on."""
OF_FIRST_INPUT = frozenset(
    ("Gelu", "FastGelu", "BiasGelu", "QuickGelu", "FusedMatMul", "FusedGemm", "FusedConv")
)
"""Operators of ONNX Runtime that give the type of their first input."""
CONSTANT_TYPES = {
    "value_float": np.float32,
    "value_floats": np.float32,
    "value_int": np.int64,
    "value_ints": np.int64,
}


def without_constant_nodes(model: onnx.ModelProto) -> onnx.ModelProto:
    """Move each Constant node's tensor to the initializers; the model given is changed."""
    graph = model.graph
    tensors = [_constant(node) if node.op_type == "Constant" else None for node in graph.node]
    others = [node for node, tensor in zip(graph.node, tensors, strict=True) if tensor is None]
    del graph.node[:]
    graph.node.extend(others)
    graph.initializer.extend(tensor for tensor in tensors if tensor is not None)
    return model


def without_integer_biases(model: onnx.ModelProto) -> onnx.ModelProto:
    """Write INT32 constants that are dequantized as floats; the model given is changed.

    ONNX Runtime's quantizers keep biases so, and TensorRT dequantizes no INT32.
    """
    graph = model.graph
    constants = {tensor.name: tensor for tensor in graph.initializer}
    others = []
    for node in graph.node:
        values = constants.get(node.input[0]) if node.op_type == "DequantizeLinear" else None
        if values is None or values.data_type != TensorProto.INT32:
            others.append(node)
            continue
        counts = numpy_helper.to_array(values)
        steps, *zeros = (numpy_helper.to_array(constants[name]) for name in node.input[1:] if name)
        zero = zeros[0] if zeros else np.zeros((), dtype=np.int32)
        axis = next((item.i for item in node.attribute if item.name == "axis"), 1)
        shape = [1] * counts.ndim
        if steps.ndim == 1 and counts.ndim:
            shape[axis if -counts.ndim <= axis < counts.ndim else 0] = -1
        bias = (counts - zero.reshape(shape if zero.ndim else ())) * (
            steps.reshape(shape) if steps.ndim else steps
        )
        graph.initializer.append(numpy_helper.from_array(bias.astype(np.float32), node.output[0]))
    del graph.node[:]
    graph.node.extend(others)
    return model


def float_tensors(model: onnx.ModelProto) -> frozenset[str]:
    """Return the names of the FP32 tensors. Raises NetworkRefused, as `tensor_types` does."""
    types = tensor_types(model)
    return frozenset(name for name, kind in types.items() if kind == TensorProto.FLOAT)


def tensor_types(model: onnx.ModelProto) -> dict[str, int]:
    """Return the data type of each tensor.

    Raises NetworkRefused for a node whose output has no type that ONNX knows.
    """
    skeleton = _skeleton(model)
    types = _types(skeleton)
    while (known := _runtime_types(model, types)) is not None:
        name, kind = known
        skeleton.graph.value_info.append(helper.make_tensor_value_info(name, kind, None))
        types = _types(skeleton) | {name: kind}
    for node in model.graph.node:
        unknown = [name for name in node.output if name and name not in types]
        if unknown:
            raise NetworkRefused(
                f"node {node.name or unknown[0]} (operator {node.op_type}) gives {unknown[0]}, "
                "whose type ONNX does not know; rewrite it with standard operators, or ask for "
                "precision fp32."
            )
    return types


def outer_reads(node: onnx.NodeProto) -> tuple[str, ...]:
    """Return the tensors of outer graphs that a node's bodies read, each once."""
    return tuple(dict.fromkeys(name for graph in bodies(node) for name in _free_names(graph)))


def rename_outer(node: onnx.NodeProto, names: Mapping[str, str]) -> None:
    """Rename tensors of outer graphs that a node's bodies read; the node is changed."""
    for graph in bodies(node):
        own = _own_names(graph)
        others = {name: other for name, other in names.items() if name not in own}
        for inner in graph.node:
            for index, name in enumerate(inner.input):
                inner.input[index] = others.get(name, name)
            rename_outer(inner, others)
        for output in graph.output:
            output.name = others.get(output.name, output.name)


def _own_names(graph: onnx.GraphProto) -> set[str]:
    tensors = (*graph.input, *graph.initializer)
    outputs = (name for node in graph.node for name in node.output)
    return {*(tensor.name for tensor in tensors), *outputs}


def _free_names(graph: onnx.GraphProto) -> Iterator[str]:
    own = _own_names(graph)
    outputs = (output.name for output in graph.output)
    read = (name for node in graph.node for name in (*node.input, *outer_reads(node)))
    yield from (name for name in (*read, *outputs) if name and name not in own)


def _constant(node: onnx.NodeProto) -> onnx.TensorProto | None:
    attribute = node.attribute[0]
    if attribute.name == "value":
        tensor = onnx.TensorProto()
        tensor.CopyFrom(attribute.t)
        tensor.name = node.output[0]
        return tensor
    kind = CONSTANT_TYPES.get(attribute.name)
    if kind is None:
        return None
    values = np.array(helper.get_attribute_value(attribute), dtype=kind)
    return numpy_helper.from_array(values, node.output[0])


def _types(skeleton: onnx.ModelProto) -> dict[str, int]:
    graph = onnx.shape_inference.infer_shapes(skeleton).graph
    types = {weight.name: weight.data_type for weight in graph.initializer}
    for value in (*graph.input, *graph.value_info, *graph.output):
        if value.type.tensor_type.elem_type:
            types[value.name] = value.type.tensor_type.elem_type
    return types


def _runtime_types(model: onnx.ModelProto, types: Mapping[str, int]) -> tuple[str, int] | None:
    """Return one more tensor of known type: what ONNX Runtime's own operators give."""
    for node in model.graph.node:
        is_known = node.domain == RUNTIME_DOMAIN and node.op_type in OF_FIRST_INPUT
        if is_known and node.output[0] not in types and node.input[0] in types:
            return node.output[0], types[node.input[0]]
    return None


def _skeleton(model: onnx.ModelProto) -> onnx.ModelProto:
    """Turn large initializers into inputs, so that no gigabytes are copied."""
    result = onnx.ModelProto(ir_version=model.ir_version)
    result.opset_import.extend(model.opset_import)
    result.functions.extend(model.functions)
    result.graph.name = model.graph.name
    result.graph.node.extend(model.graph.node)
    result.graph.output.extend(model.graph.output)
    declared = {weight.name for weight in model.graph.initializer}
    result.graph.input.extend(value for value in model.graph.input if value.name not in declared)
    for weight in model.graph.initializer:
        if np.prod(weight.dims, dtype=np.int64) > SMALL:
            info = helper.make_tensor_value_info(weight.name, weight.data_type, weight.dims)
            result.graph.input.append(info)
        else:
            result.graph.initializer.append(weight)
    return result


def at_qdq_opset(
    model: onnx.ModelProto, *, largest: int = LARGEST_CONVERTED_BYTES
) -> onnx.ModelProto:
    """Return the network at an opset whose Q/DQ nodes may have FP16 scales, or refuse it.

    Weights above `largest` bytes are taken out meanwhile: ONNX's converter writes the network into
    one message, which holds 2 GiB.
    """
    version = opset(model)
    if version >= QDQ_OPSET or not any(node.op_type in QDQ for node in model.graph.node):
        return model
    weights = _take_out_weights(model, largest)
    try:
        converted = onnx.version_converter.convert_version(model, QDQ_OPSET)
        _put_back_weights(converted, weights)
        return converted
    except Exception as error:
        reason = one_line(error, 200)
        raise NetworkRefused(
            f"the Q/DQ network of opset {version} cannot be raised to opset {QDQ_OPSET}, which "
            f"FP16 scales need ({reason}); export it at opset {QDQ_OPSET}."
        ) from error
    finally:
        _put_back_weights(model, weights)


def _take_out_weights(model: onnx.ModelProto, largest: int) -> dict[str, bytes]:
    """Return the bytes of large weights by name, which the network then has no longer."""
    weights = {
        weight.name: weight.raw_data
        for weight in model.graph.initializer
        if len(weight.raw_data) > largest
    }
    for weight in model.graph.initializer:
        if weight.name in weights:
            weight.ClearField("raw_data")
    return weights


def _put_back_weights(model: onnx.ModelProto, weights: Mapping[str, bytes]) -> None:
    for weight in model.graph.initializer:
        if weight.name in weights:
            weight.raw_data = weights[weight.name]
