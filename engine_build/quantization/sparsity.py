"""Weights of which two in four are zero, along the axis that is summed over.

TensorRT's sparse kernels need it of every four input channels, for each output channel and place of
a kernel (TensorRT's developer guide, "Structured Sparsity").
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx

from engine_build.datasets.dataset import Array
from engine_build.errors import InputRefused
from engine_build.onnx_graph.external_data import load_model
from engine_build.onnx_graph.network_store import Network
from engine_build.quantization.layers import Constants, Layer, quantizable_layers

GROUP, ZEROS = 4, 2


@dataclass(frozen=True, kw_only=True)
class Sparsity:
    """How many of a network's weights TensorRT may skip half of."""

    layers: int
    sparse_layers: int
    """Those of which every group of four weights has two zeros."""
    sparse_weights: float
    """Share of all weights that lie in those layers."""
    best: float
    """Share of its groups that have two zeros, of the layer with the most."""

    def __str__(self) -> str:
        return (
            f"{self.sparse_layers} of {self.layers} weighted layers ({self.sparse_weights:.1%} of "
            "their weights) have two zeros in every four"
        )


def measure_sparsity(model: onnx.ModelProto) -> Sparsity:
    """Measure every MatMul, Gemm and Conv with a constant float32 weight."""
    constants, layers = Constants(model), quantizable_layers(model)
    rows = []
    for layer in layers:
        weight = constants.array(layer.weight)
        rows.append((weight.size, sparse_share(layer, weight)))
    sizes = sum(size for size, _ in rows)
    sparse = [size for size, share in rows if share == 1.0]
    return Sparsity(
        layers=len(rows),
        sparse_layers=len(sparse),
        sparse_weights=sum(sparse) / sizes if sizes else 0.0,
        best=max((share for _, share in rows), default=0.0),
    )


def sparse_share(layer: Layer, weight: Array) -> float:
    """Return the share of a weight's groups that have two zeros.

    0 where the channels summed over are no multiple of four.
    """
    # [input channels, whatever else]
    channels = (
        np.moveaxis(weight, 1, 0) if layer.operator == "Conv" else layer.rows(weight)
    ).reshape(weight.shape[1 - layer.column_axis], -1)
    if len(channels) % GROUP or not channels.size:
        return 0.0
    zeros = (channels.reshape(-1, GROUP, channels.shape[1]) == 0).sum(axis=1)
    return float((zeros >= ZEROS).mean())


def refuse_dense_network(network: Network) -> Sparsity:
    """Return a network's sparsity, or refuse it where no layer is sparse. Raises InputRefused."""
    sparsity = measure_sparsity(load_model(network.path))
    if not sparsity.sparse_layers:
        raise InputRefused(
            f"`sparsity: enable` gains nothing: {sparsity}; the nearest layer has them in "
            f"{sparsity.best:.1%} of its groups. Prune the model to 2:4 and train it on (NVIDIA's "
            "Model Optimizer), or leave `sparsity` out."
        )
    return sparsity
