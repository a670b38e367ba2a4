"""Explicit FP8: E4M3 Q/DQ nodes around each MatMul and Gemm of a float network.

As NVIDIA's Model Optimizer writes them: one scale per activation, one per output channel of a
weight, each the largest absolute value of the calibration samples by E4M3's 448. Convolutions, and
layers with an axis below 16, the least that kernels of FP8 multiply, stay float. An exponent holds
outliers, so nothing is smoothed, and no percentile is cut off.
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
from engine_build.errors import NothingForInt8, SourceFault, one_line
from engine_build.onnx_graph.external_data import save_model
from engine_build.onnx_graph.network_store import Network
from engine_build.onnx_graph.onnx_file import opset, read_model
from engine_build.ort import OrtNetwork
from engine_build.quantization.layers import (
    Activations,
    Constants,
    Layer,
    multiply_accumulates,
    not_counted,
    quantizable_layers,
    share,
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
        work, beside = multiply_accumulates(model, row), list(not_counted(model))
        path, fp8 = self.folder / "model.onnx", [layer.node for layer in layers]
        save_model(quantize_fp8(model, layers, maxima), path)
        onnx.checker.check_model(str(path))
        if not np.isfinite(OrtNetwork(path).rows(self.encoder.feed(self.calibration[:2]))).all():
            raise NothingForInt8("the FP8 network gives NaN or Inf; ask for precision fp16.")
        facts = {
            "mode": "explicit",
            "precision": "fp8",
            "method": "max",
            "samples": len(self.calibration),
            "share_at_sequence": self.shape.sequence,
            "int8_share_of_matmul_macs": round(share(work, fp8), 4),
            "not_counted": beside,
            "int8_layers": len(fp8),
            "float_layers": [node for node in work if node not in fp8],
        }
        return dataclasses.replace(
            self.network, precision="fp8", path=path, facts=facts, tokenizer=None
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
    maxima: dict[str, float] = {}
    for batch in activations.rows(feeds):
        for name, rows in batch.items():
            largest = float(np.abs(rows).max())
            if not np.isfinite(largest):
                raise SourceFault(
                    f"tensor {name} becomes NaN or Inf on the calibration samples; repair them, "
                    "or the source."
                )
            maxima[name] = max(largest, maxima.get(name, 0.0))
    return maxima


def quantize_fp8(
    model: onnx.ModelProto, layers: Sequence[Layer], maxima: Mapping[str, float]
) -> onnx.ModelProto:
    """Write Q/DQ nodes before each layer; the model given is changed."""
    constants, chosen = Constants(model), {layer.output: layer for layer in layers}
    nodes: list[onnx.NodeProto] = []
    new: list[onnx.TensorProto] = [_e4m3("fp8_zero", np.zeros((), dtype=np.float32))]
    activations: dict[str, str] = {}
    for node in model.graph.node:
        layer = chosen.get(node.output[0]) if node.output else None
        if layer is not None:
            tensor = layer.activation
            if tensor not in activations:
                prefix = f"fp8_{len(activations)}"
                activations[tensor] = f"{prefix}_dequantized"
                step = scales(np.array(maxima[tensor]))
                new.append(numpy_helper.from_array(step, f"{prefix}_scale"))
                nodes += _pair(tensor, prefix)
            dequantized, tensors = _weight(layer, constants.array(layer.weight))
            nodes.append(dequantized)
            new += tensors
            node.input[0], node.input[1] = activations[tensor], dequantized.output[0]
        nodes.append(node)
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    model.graph.initializer.extend(new)
    _drop_unread(model, {layer.weight for layer in layers})
    return model


def scales(maxima: Array) -> Array:
    """Return scales for largest absolute values.

    They are numbers of FP16, so that a network in FP16 divides by what its weights were divided by.
    """
    smallest = np.finfo(np.float16).smallest_subnormal
    steps: Array = np.maximum(maxima / LARGEST, smallest).astype(np.float16).astype(np.float32)
    return steps


def _weight(layer: Layer, values: Array) -> tuple[onnx.NodeProto, list[onnx.TensorProto]]:
    """Return DequantizeLinear of a weight in E4M3, a scale an output channel."""
    prefix, axis = f"{layer.output}_weight", layer.column_axis
    steps = scales(np.abs(values).max(axis=1 - axis))
    quantized = np.clip(values / np.expand_dims(steps, 1 - axis), -LARGEST, LARGEST)
    tensors = [_e4m3(f"{prefix}_fp8", quantized), numpy_helper.from_array(steps, f"{prefix}_scale")]
    names = [tensor.name for tensor in tensors]
    tensors.append(_e4m3(f"{prefix}_zero", np.zeros(len(steps), dtype=np.float32)))
    return helper.make_node(
        "DequantizeLinear",
        [*names, tensors[-1].name],
        [f"{prefix}_dequantized"],
        name=f"{prefix}_dequantized",
        axis=axis,
    ), tensors


def _pair(tensor: str, prefix: str) -> list[onnx.NodeProto]:
    make = helper.make_node
    quantized, dequantized = f"{prefix}_quantized", f"{prefix}_dequantized"
    steps = [f"{prefix}_scale", "fp8_zero"]
    return [
        make("QuantizeLinear", [tensor, *steps], [quantized], name=quantized),
        make("DequantizeLinear", [quantized, *steps], [dequantized], name=dequantized),
    ]


def _e4m3(name: str, values: Array) -> onnx.TensorProto:
    """Return a tensor of E4M3; values are rounded to the nearest, ties to even."""
    data = np.asarray(values).astype(ml_dtypes.float8_e4m3fn).tobytes()
    return helper.make_tensor(name, E4M3, np.shape(values), data, raw=True)


def _drop_unread(model: onnx.ModelProto, weights: set[str]) -> None:
    """Drop float weights that nothing reads any more."""
    read = {name for node in model.graph.node for name in node.input}
    bodies = any(
        attribute.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)
        for node in model.graph.node
        for attribute in node.attribute
    )
    if bodies:
        return
    kept = [item for item in model.graph.initializer if item.name not in weights - read]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
