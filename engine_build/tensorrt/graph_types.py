"""Types of a network's tensors, inferred without copying its weights."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from engine_build.errors import NetworkRefused

SMALL = 64
"""Elements; initializers up to this size may be axes or shapes that types depend on."""
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


def float_tensors(model: onnx.ModelProto) -> frozenset[str]:
    """Return the names of the FP32 tensors.

    Raises NetworkRefused for a node whose output has no type that ONNX knows.
    """
    graph = onnx.shape_inference.infer_shapes(_skeleton(model)).graph
    types = {weight.name: weight.data_type for weight in graph.initializer}
    for value in (*graph.input, *graph.value_info, *graph.output):
        if value.type.tensor_type.elem_type:
            types[value.name] = value.type.tensor_type.elem_type
    for node in model.graph.node:
        unknown = [name for name in node.output if name and name not in types]
        if unknown:
            raise NetworkRefused(
                f"node {node.name or unknown[0]} (operator {node.op_type}) gives {unknown[0]}, "
                "whose type ONNX does not know; rewrite it with standard operators, or ask for "
                "precision fp32."
            )
    return frozenset(name for name, kind in types.items() if kind == TensorProto.FLOAT)


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


def _skeleton(model: onnx.ModelProto) -> onnx.ModelProto:
    """Turn large initializers into inputs, so that no gigabytes are copied."""
    result = onnx.ModelProto(ir_version=model.ir_version)
    result.opset_import.extend(model.opset_import)
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
