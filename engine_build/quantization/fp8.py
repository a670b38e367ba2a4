"""Explicit FP8: E4M3 Q/DQ nodes around each MatMul and Gemm of a float network.

As NVIDIA's Model Optimizer writes them: one scale per activation, one per output channel of a
weight, each the largest absolute value of the calibration samples by E4M3's 448. Convolutions, and
layers with an axis below 16, the least that kernels of FP8 multiply, stay float. An exponent holds
outliers, so nothing is smoothed, and no percentile is cut off.

On a CPU, Div, Cast, Cast and Mul stand in the place of the nodes: servers' ONNX Runtime takes
DequantizeLinear of E4M3 for that of INT8, and its fusion of a MatMul of two such nodes gives an
integer operator that refuses E4M3 (1.31.1, with session.disable_quant_qdq unset). They compute the
same, rounded alike, and constants stay in eight bits.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from engine_build.datasets.dataset import Array, Encoder, Feed, Sample, Shape, by_length
from engine_build.errors import NetworkRefused, NothingForInt8, one_line
from engine_build.onnx_graph.external_data import load_model, save_model
from engine_build.onnx_graph.network_store import Network
from engine_build.onnx_graph.onnx_file import QDQ, opset, read_model
from engine_build.quantization.calibration import activation_samples
from engine_build.quantization.layers import (
    Activations,
    Constants,
    Layer,
    multiply_accumulates,
    node_name,
    quantizable_layers,
    work_facts,
)
from engine_build.quantization.qdq import (
    make_node,
    qdq_pair,
    with_inputs,
    with_nodes,
    write_quantized,
)

LARGEST = 448.0
"""The largest number of E4M3."""
OPSET = 19
"""The first whose Q/DQ nodes take E4M3."""
LEAST_AXIS = 16
OPERATORS = ("MatMul", "Gemm")
BATCH = 8
E4M3 = TensorProto.FLOAT8E4M3FN


@dataclass(frozen=True, kw_only=True)
class Fp8Quantization:
    """One float network, and the samples that set its ranges."""

    network: Network
    encoder: Encoder
    calibration: tuple[Sample, ...]
    shape: Shape
    """At which the share of FP8 work is computed."""
    folder: Path
    """Where `model.onnx` is written."""

    @property
    def description(self) -> str:
        """Say what `run` does."""
        return f"FP8 Q/DQ of MatMul and Gemm, maxima of {len(self.calibration)} samples"

    def run(self) -> Network:
        """Write the Q/DQ network. Raises NothingForInt8 and SourceFault."""
        model = at_fp8_opset(read_model(self.network.path))
        layers = fp8_layers(model)
        if not layers:
            raise NothingForInt8(
                "the network has no MatMul or Gemm with a constant float32 weight of 16 rows and "
                "columns or more, and FP8 needs one: ask for int8 or fp16."
            )
        order = by_length(self.encoder, self.calibration)
        samples = [self.calibration[index] for index in order]
        maxima = activation_maxima(model, layers, self.encoder.feeds(samples, BATCH))
        row = self.encoder.shaped(self.calibration, dataclasses.replace(self.shape, batch=1))
        work, nodes = multiply_accumulates(model, row), [layer.node for layer in layers]
        facts = {
            "mode": "explicit",
            "precision": "fp8",
            "method": "max",
            "samples": len(self.calibration),
            "share_at_sequence": self.shape.sequence,
            **work_facts(model, work, nodes),
        }
        network = dataclasses.replace(self.network, facts=facts)
        feed = self.encoder.feed(self.calibration[:2])
        return write_quantized(
            quantize_fp8(model, layers, maxima), network, "fp8", self.folder, feed
        )


def at_fp8_opset(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the network at an opset that knows E4M3. Raises NothingForInt8."""
    if opset(model) >= OPSET:
        return model
    try:
        return onnx.version_converter.convert_version(model, OPSET)
    except Exception as error:
        raise NothingForInt8(
            f"the network of opset {opset(model)} cannot be raised to opset {OPSET}, which FP8 "
            f"needs ({one_line(error, 200)}); export it at opset {OPSET}."
        ) from error


def fp8_layers(model: onnx.ModelProto) -> tuple[Layer, ...]:
    """Return each MatMul and Gemm that FP8 can compute."""
    constants = Constants(model)
    return tuple(
        layer
        for layer in quantizable_layers(model)
        if layer.operator in OPERATORS and min(constants.array(layer.weight).shape) >= LEAST_AXIS
    )


def activation_maxima(
    model: onnx.ModelProto, layers: Sequence[Layer], feeds: Iterable[Feed]
) -> dict[str, float]:
    """Return the largest absolute value of each layer's activation. Raises SourceFault for NaN."""
    activations = Activations(model, {layer.activation: layer.channel_axis for layer in layers})
    samples = activation_samples(activations.rows(feeds), 0)
    return {name: sample.smoothed_maximum(None) for name, sample in samples.items()}


def quantize_fp8(
    model: onnx.ModelProto, layers: Sequence[Layer], maxima: Mapping[str, float]
) -> onnx.ModelProto:
    """Return the network with Q/DQ nodes before each layer."""
    weights, chosen = Constants(model), {layer.output: layer for layer in layers}
    nodes: list[onnx.NodeProto] = []
    constants: dict[str, Array] = {"fp8_zero": np.zeros((), ml_dtypes.float8_e4m3fn)}
    activations: dict[str, str] = {}
    for node in model.graph.node:
        layer = chosen.get(node.output[0]) if node.output else None
        if layer is not None:
            tensor = layer.activation
            if tensor not in activations:
                prefix = f"fp8_{len(activations)}"
                constants[f"{prefix}_scale"] = scales(np.array(maxima[tensor]))
                nodes += qdq_pair(prefix, tensor, f"{prefix}_scale", "fp8_zero")
                activations[tensor] = nodes[-1].output[0]
            dequantized, values = _weight(layer, weights.array(layer.weight))
            nodes.append(dequantized)
            constants |= values
            node = with_inputs(node, activations[tensor], dequantized.output[0])
        nodes.append(node)
    result = with_nodes(model, nodes, constants)
    result.graph.value_info.extend(model.graph.value_info)
    return result


def scales(maxima: Array) -> Array:
    """Return scales for largest absolute values.

    They are numbers of FP16, so that a network in FP16 divides by what its weights were divided by.
    """
    smallest = np.finfo(np.float16).smallest_subnormal
    steps: Array = np.maximum(maxima / LARGEST, smallest).astype(np.float16).astype(np.float32)
    return steps


def _weight(layer: Layer, values: Array) -> tuple[onnx.NodeProto, dict[str, Array]]:
    """Return DequantizeLinear of a weight in E4M3, rounded to the nearest, ties to even."""
    prefix, axis = f"{layer.output}_weight", layer.column_axis
    steps = scales(np.abs(values).max(axis=1 - axis))
    quantized = np.clip(values / np.expand_dims(steps, 1 - axis), -LARGEST, LARGEST)
    constants = {
        f"{prefix}_fp8": quantized.astype(ml_dtypes.float8_e4m3fn),
        f"{prefix}_scale": steps,
        f"{prefix}_zero": np.zeros(len(steps), ml_dtypes.float8_e4m3fn),
    }
    node = make_node("DequantizeLinear", list(constants), f"{prefix}_dequantized", axis=axis)
    return node, constants


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
            nodes.append(make_node("Div", [tensor, name], between))
            nodes.append(make_node("Cast", [between], result, to=E4M3, saturate=1))
        else:
            nodes.append(make_node("Cast", [tensor], between, to=kind))
            nodes.append(make_node("Mul", [between, name], result))
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
