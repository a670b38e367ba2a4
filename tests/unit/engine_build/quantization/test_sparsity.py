"""Two zeros in every four weights, along the axis that is summed over."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from engine_build.errors import InputRefused
from engine_build.quantization.layers import quantizable_layers
from engine_build.quantization.sparsity import measure_sparsity, refuse_dense_network, sparse_share
from tests.unit.engine_build.custom import scaled_network
from tests.unit.engine_build.graphs import node, tensor, write_graph
from tests.unit.engine_build.quantization import graphs

RANDOM = np.random.default_rng(3)


def dense(*sizes):
    return (RANDOM.normal(size=sizes) + 3).astype(np.float32)


def pruned(*sizes):
    """Two of every four rows are zero."""
    weight = dense(*sizes)
    weight[0::4] = weight[2::4] = 0
    return weight


def judge(path, first):
    path = scaled_network(path, weights=[first, dense(first.shape[1], 8)])
    return refuse_dense_network(graphs.network(path))


def test_sparse_layers_are_counted_with_their_share_of_weights(tmp_path):
    sparsity = judge(tmp_path / "model.onnx", pruned(16, 32))
    assert (sparsity.layers, sparsity.sparse_layers, sparsity.best) == (2, 1, 1.0)
    assert sparsity.sparse_weights == pytest.approx(512 / 768)
    assert str(sparsity) == (
        "1 of 2 weighted layers (66.7% of their weights) have two zeros in every four"
    )


@pytest.mark.parametrize("transposed", [0, 1])
def test_gemm_is_measured_whichever_way_its_weight_lies(tmp_path, transposed):
    weight = pruned(8, 6).T.copy() if transposed else pruned(8, 6)
    nodes, x, y = [node("Gemm", "x w", "y", transB=transposed)], tensor("x", "b", 8), ("b", 6)
    path = write_graph(tmp_path / "gemm.onnx", nodes, [x], [tensor("y", *y)], w=weight)
    assert measure_sparsity(onnx.load(path)).sparse_weights == 1.0


@pytest.mark.parametrize(("channels", "group", "share"), [(8, 1, 1.0), (6, 1, 0.0), (8, 8, 0.0)])
def test_convolution_is_measured_over_its_input_channels(tmp_path, channels, group, share):
    weight = np.moveaxis(pruned(channels // group, 8, 3, 3), 0, 1).copy()
    nodes, x = [node("Conv", "x w", "y", group=group)], tensor("x", "batch", channels, 9, 9)
    path = write_graph(
        tmp_path / "conv.onnx", nodes, [x], [tensor("y", "batch", 8, 7, 7)], w=weight
    )
    model = onnx.load(path)
    (layer,) = quantizable_layers(model)
    assert sparse_share(layer, numpy_helper.to_array(model.graph.initializer[0])) == share


def test_refuses_a_network_without_a_sparse_layer_with_the_number(tmp_path):
    nearly = pruned(16, 32)
    nearly[0:4] = 1
    for weight, best in ((nearly, "75.0%"), (pruned(32, 16).T.copy(), "50.0%")):
        reason = (
            rf"0 of 2 weighted layers \(0.0%.*nearest layer has them in {best} of its groups. P"
        )
        with pytest.raises(InputRefused, match=reason):
            judge(tmp_path / "model.onnx", weight)
