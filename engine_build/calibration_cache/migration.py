"""From a calibration cache to a Q/DQ network: the scales that TensorRT before 11 took from a file,
written into the network.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

from engine_build.calibration_cache.cache import CalibrationCache
from engine_build.errors import InputRefused, SourceFault
from engine_build.int8.calibration import Range
from engine_build.int8.grid import LARGEST
from engine_build.int8.layers import Layer, layers
from engine_build.int8.qdq import quantized
from engine_build.runtimes.ort import OrtNetwork
from engine_build.samples.feed import ATTENTION_MASK, Feed
from onboarding.nearest import did_you_mean, listed

TRIAL_SIZES = (2, 8)
"""Of dynamic axes, in the one run of a finished network: rows, then tokens or channels."""
TRIAL_PIXELS = 64


@dataclass(frozen=True, kw_only=True)
class Migration:
    """A Q/DQ network, and what did not find its way into it."""

    network: onnx.ModelProto
    int8: tuple[str, ...]
    """Nodes whose input has the cache's scale, and whose weight a scale for each output channel."""
    without_scale: tuple[str, ...]
    """Nodes left float: the cache has no scale of their input, or 0."""
    excluded: tuple[str, ...]
    """Nodes left float because they were named."""
    not_in_network: tuple[str, ...]
    """Tensors of the cache that the network lacks; TensorRT counts its own "(Unnamed Layer* 8) …"
    too.
    """


def migrated(
    model: onnx.ModelProto, cache: CalibrationCache, exclude: Sequence[str] = ()
) -> Migration:
    """Every MatMul, Gemm and Conv in INT8 that the cache has a scale for.

    Raises InputRefused and SourceFault.
    """
    found = layers(model)
    _refuse_unknown(exclude, [layer.node for layer in found])
    scales = cache.scales
    chosen = [
        layer
        for layer in found
        if layer.node not in exclude and scales.get(layer.activation, 0.0) > 0
    ]
    if not chosen:
        raise InputRefused(
            f"no layer of the network takes its input's scale from the cache, whose tensors are {listed(scales, 3)}; name the "
            "cache of this very network, exported with the same tensor names."
        )
    int8 = tuple(layer.node for layer in chosen)
    known = {name for node in model.graph.node for name in node.output} | {
        each.name for each in model.graph.input
    }
    return Migration(
        network=quantized(model, chosen, _ranges(chosen, scales)),
        int8=int8,
        without_scale=tuple(
            layer.node for layer in found if layer.node not in exclude and layer.node not in int8
        ),
        excluded=tuple(exclude),
        not_in_network=tuple(name for name in scales if name not in known),
    )


def write_network(network: onnx.ModelProto, path: Path) -> None:
    """Writes, checks and runs a network once, on made-up values. Raises SourceFault."""
    onnx.save(network, path)
    onnx.checker.check_model(str(path))
    outputs = [output.name for output in network.graph.output]
    try:
        answers = OrtNetwork(path).values(outputs, trial_feed(network))
    except SourceFault:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:300]
        raise SourceFault(
            f"ONNX Runtime cannot run {path.name} ({reason}); look into the network at that node."
        ) from error
    broken = [
        name
        for name, values in answers.items()
        if values.dtype.kind == "f" and not np.isfinite(values).all()
    ]
    if broken:
        raise SourceFault(
            f"output {broken[0]} of {path.name} becomes NaN or Inf; check the float network, or exclude layers."
        )


def trial_feed(network: onnx.ModelProto) -> Feed:
    """Values for one run: floats of a fixed seed, integers 0, attention masks 1."""
    weights = {weight.name for weight in network.graph.initializer}
    draw = np.random.default_rng(0)
    feed: Feed = {}
    for tensor in (each for each in network.graph.input if each.name not in weights):
        kind = helper.tensor_dtype_to_np_dtype(tensor.type.tensor_type.elem_type)
        shape = tuple(
            _size(dim, axis) for axis, dim in enumerate(tensor.type.tensor_type.shape.dim)
        )
        is_float = np.issubdtype(kind, np.floating)
        values = (
            draw.standard_normal(shape)
            if is_float
            else np.full(shape, tensor.name == ATTENTION_MASK)
        )
        feed[tensor.name] = values.astype(kind)
    return feed


def _ranges(chosen: Sequence[Layer], scales: dict[str, float]) -> dict[str, Range]:
    # Times 127 in float64, so that the writer's division gives the cache's own float32 back.
    return {
        layer.activation: Range(smoothing=None, threshold=scales[layer.activation] * LARGEST)
        for layer in chosen
    }


def _refuse_unknown(exclude: Sequence[str], nodes: Sequence[str]) -> None:
    for name in exclude:
        if name not in nodes:
            raise InputRefused(
                f"--exclude {name} is no layer of the network; {did_you_mean(name, nodes, 'allowed: ' + listed(nodes))}"
            )


def _size(dim: onnx.TensorShapeProto.Dimension, axis: int) -> int:
    if dim.HasField("dim_value"):
        return int(dim.dim_value)
    return TRIAL_SIZES[axis] if axis < len(TRIAL_SIZES) else TRIAL_PIXELS
