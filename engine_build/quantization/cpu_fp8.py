"""An FP8 network for servers' ONNX Runtime, which takes DequantizeLinear of E4M3 for that of INT8.

Its fusion of a MatMul of two such nodes gives an integer operator that refuses E4M3 (1.31.1, with
session.disable_quant_qdq unset). Div, Cast, Cast and Mul compute the same, rounded alike, and
constants stay in eight bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from engine_build.errors import NetworkRefused
from engine_build.onnx_graph.external_data import load_model, save_model
from engine_build.onnx_graph.onnx_file import QDQ
from engine_build.quantization.layers import Constants, node_name

E4M3 = TensorProto.FLOAT8E4M3FN


def write_cpu_fp8(source: Path, target: Path) -> None:
    """Write the network with casts in place of its Q/DQ nodes. Raises NetworkRefused."""
    save_model(with_casts(load_model(source)), target)
    onnx.checker.check_model(str(target))


def with_casts(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return an FP8 network with casts in place of its Q/DQ nodes; the model given is changed.

    Raises NetworkRefused for scales that are computed, or of an axis of unknown place.
    """
    constants, nodes = Constants(model), list[onnx.NodeProto]()
    quantized = {
        node.output[0]: node.input[0]
        for node in model.graph.node
        if node.op_type == "QuantizeLinear"
    }
    scales: list[onnx.TensorProto] = []
    for node in model.graph.node:
        if node.op_type not in QDQ:
            nodes.append(node)
            continue
        scale = _scale(node, constants, quantized)
        scales.append(numpy_helper.from_array(scale, f"{node.output[0]}_scale"))
        tensor, result, name = node.input[0], node.output[0], scales[-1].name
        between, kind = f"{result}_before", helper.np_dtype_to_tensor_dtype(scale.dtype)
        if node.op_type == "QuantizeLinear":
            nodes.append(helper.make_node("Div", [tensor, name], [between], name=between))
            nodes.append(
                helper.make_node("Cast", [between], [result], name=result, to=E4M3, saturate=1)
            )
        else:
            nodes.append(helper.make_node("Cast", [tensor], [between], name=between, to=kind))
            nodes.append(helper.make_node("Mul", [between, name], [result], name=result))
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    model.graph.initializer.extend(scales)
    return model


def _scale(node: onnx.NodeProto, constants: Constants, quantized: Mapping[str, str]) -> np.ndarray:
    """Return a node's scales in the shape that broadcasts over its input.

    `quantized` maps a quantize node's output to its input: a weight may have both nodes.
    """
    name = constants.name(node.input[1])
    tensor = constants.name(quantized.get(node.input[0], node.input[0]))
    scale = None if name is None else constants.array(name)
    if scale is None or scale.size == 1:
        if scale is not None:
            return scale.reshape(())
        raise NetworkRefused(f"node {node_name(node)} computes its scale; quantize with constants.")
    axis = next((item.i for item in node.attribute if item.name == "axis"), 1)
    if axis >= 0 and tensor is not None:
        axis -= constants.array(tensor).ndim
    if axis >= 0 or scale.ndim != 1:
        raise NetworkRefused(
            f"node {node_name(node)} has {scale.size} scales of an activation; allowed on a CPU: "
            "one a tensor, or one a channel of a weight."
        )
    return scale.reshape(-1, *([1] * (-axis - 1)))
