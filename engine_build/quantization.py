"""The quantize step, explicit mode: a symmetric INT8 Q/DQ network, its activations smoothed into the weights.

Each weighted MatMul whose input is no activation function's output becomes Mul (1/s), Q, DQ, MatMul with the weight's rows
times s; s = max|X|^alpha / max|W|^(1-alpha) by channel. The explicit Mul is needed: behind a post-norm residual the scale
cannot go into the normalisation. Weights are quantized by column. Everything else stays float.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from engine_build.calibration import (
    Activations,
    channel_maxima,
    entropy_threshold,
    histograms,
    percentile_threshold,
)
from engine_build.encoder import Encoder
from engine_build.errors import SourceFault
from engine_build.feed import Array, Feed, Shape
from engine_build.matmuls import MatMul, matmul_tensors, weighted_matmuls
from engine_build.networks import Network
from engine_build.onnx_source import read_model
from engine_build.ort import OrtNetwork
from engine_build.qdq import quantized
from engine_build.samples import Sample
from onboarding.values import CalibrationMethod

ALPHA = 0.7
BATCH = 16


@dataclass(frozen=True, kw_only=True)
class Ranges:
    """How one activation tensor is quantized."""

    smoothing: Array
    """By channel; the tensor is divided by it."""
    threshold: float
    """The largest absolute value that INT8 tells apart."""


def intent(samples: int, method: CalibrationMethod) -> str:
    """What the step will do."""
    return f"symmetric INT8 Q/DQ of weighted MatMuls, smoothing alpha {ALPHA}, {method} of {samples} samples"


def quantize(
    network: Network, encoder: Encoder, samples: Sequence[Sample], folder: Path, *, method: CalibrationMethod, shape: Shape
) -> Network:
    """Writes the Q/DQ network. `shape` is where the share of INT8 work is told. Raises SourceFault."""
    model = read_model(network.path)
    matmuls = weighted_matmuls(model)
    chosen = tuple(each for each in matmuls if not each.follows_activation_function)
    if not chosen:
        raise SourceFault("the network has no weighted MatMul that INT8 can take; ask for precision fp32.")
    ranges = measured_ranges(model, chosen, list(encoder.feeds(sorted(samples, key=encoder.length), BATCH)), method)
    path = folder / "model.onnx"
    onnx.save(quantized(model, chosen, {name: (r.smoothing, r.threshold) for name, r in ranges.items()}), path)
    _refuse_broken_output(path, encoder.feed(samples[:2]))
    facts: dict[str, Any] = {
        "method": method,
        "samples": len(samples),
        "smoothing_alpha": ALPHA,
        "int8_share_of_matmul_macs": round(
            int8_share(model, chosen, encoder.shaped(samples, Shape(batch=1, sequence=shape.sequence))), 4
        ),
        "share_at_sequence": shape.sequence,
        "int8_matmuls": [each.node for each in chosen],
        "float_after_activation_function": [each.node for each in matmuls if each.follows_activation_function],
    }
    return Network(precision="int8", path=path, inputs=network.inputs, outputs=network.outputs, facts=facts)


def measured_ranges(
    model: onnx.ModelProto, matmuls: Sequence[MatMul], feeds: Sequence[Feed], method: CalibrationMethod
) -> dict[str, Ranges]:
    """Smoothing and threshold of each activation tensor; tensors that several MatMuls share get one of each."""
    weights = {weight.name: numpy_helper.to_array(weight) for weight in model.graph.initializer}
    tensors = tuple(dict.fromkeys(each.activation for each in matmuls))
    activations = Activations(model, tensors)
    seen = channel_maxima(activations, feeds)
    scales = {
        name: smoothing(seen[name], [weights[each.weight] for each in matmuls if each.activation == name]) for name in tensors
    }
    maxima = {name: float((seen[name] / scales[name]).max()) for name in tensors}
    thresholds = maxima if method == "max" else _thresholds(activations, feeds, scales, maxima, method)
    return {name: Ranges(smoothing=scales[name], threshold=thresholds[name]) for name in tensors}


def smoothing(activation_maxima: Array, weights: Sequence[Array]) -> Array:
    """How much of each channel's range moves from the activation into the rows of its weights."""
    rows = np.max([np.abs(weight).max(axis=1) for weight in weights], axis=0)
    scale: Array = np.maximum(activation_maxima, 1e-5) ** ALPHA / np.maximum(rows, 1e-5) ** (1 - ALPHA)
    positive: Array = np.maximum(scale, 1e-5).astype(np.float32)
    return positive


def int8_share(model: onnx.ModelProto, chosen: Sequence[MatMul], feed: Feed) -> float:
    """Part of all MatMul multiply-accumulates that INT8 does, for one row."""
    tensors = matmul_tensors(model)
    names = tuple(dict.fromkeys(name for pair in tensors.values() for name in pair))
    shapes = Activations(model, names).shapes(feed)
    work = {node: int(np.prod(shapes[output])) * shapes[first][-1] for node, (first, output) in tensors.items()}
    return sum(work[each.node] for each in chosen) / sum(work.values())


def _thresholds(
    activations: Activations,
    feeds: Sequence[Feed],
    scales: Mapping[str, Array],
    maxima: Mapping[str, float],
    method: CalibrationMethod,
) -> dict[str, float]:
    threshold = percentile_threshold if method == "percentile" else entropy_threshold
    counts = histograms(activations, feeds, scales, maxima)
    return {name: threshold(counts[name], maxima[name]) for name in maxima}


def _refuse_broken_output(path: Path, feed: Feed) -> None:
    if not np.isfinite(OrtNetwork(path).rows(feed)).all():
        raise SourceFault("the Q/DQ network gives NaN or Inf; ask for precision fp32.")
