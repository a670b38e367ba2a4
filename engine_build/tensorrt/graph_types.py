"""Which tensors of a network are float, told without its weights' bytes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

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
