"""Layers of a network: which are quantized, where the nodes lie, their work and sparsity."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

from engine_build.errors import InputRefused
from engine_build.quantization.layers import (
    implicit_int8_fault,
    int8_tensors,
    left_in_float,
    multiply_accumulates,
    node_work,
    quantizable_layers,
    residual_inputs,
    tensors_of,
)
from engine_build.quantization.qdq import quantize_layers
from engine_build.steps.export import refuse_dense_network, sparse_share
from tests.unit.engine_build.graphs import node, scaled_network, tensor, write_graph
from tests.unit.engine_build.quantization import graphs
from tests.unit.engine_build.quantization.graphs import (
    Graph,
    chain,
    cnn,
    images,
    ranges,
    transformer,
    vit,
)


@pytest.mark.parametrize(
    ("model", "operators", "follows"),
    [
        (transformer(), ["MatMul"] * 6 + ["Gemm"], [False] * 5 + [True, False]),
        (cnn(), ["Conv", "Conv", "Gemm"], [False, True, False]),
        (vit(), ["Conv"] + ["MatMul"] * 7, [False] * 6 + [True, False]),
        *(
            (chain(operator, "Identity"), ["MatMul"] * 2, [False, True])
            for operator in ("Relu", "Erf", "Tanh")
        ),
        # A normalisation in between ends the search.
        (chain("Relu", "Softmax"), ["MatMul"] * 2, [False, False]),
    ],
    ids=["transformer", "cnn", "vit", "Relu", "Erf", "Tanh", "Softmax"],
)
def test_layers_with_weights_are_found_and_those_behind_an_activation_function(
    model, operators, follows
):
    layers = quantizable_layers(model)
    assert [layer.operator for layer in layers] == operators
    assert [layer.follows_activation_function for layer in layers] == follows


@pytest.mark.parametrize(
    ("attributes", "axes"),
    [({"transB": 0}, [1]), ({"transB": 1}, [0]), ({"alpha": 0.5}, []), ({"transA": 1}, [])],
)
def test_gemm_has_scales_along_its_output_channels_unless_it_is_more_than_a_product(
    attributes, axes
):
    graph = Graph()
    scores = graph.node("Gemm", "x", graph.weight(4, 4), **attributes)
    model = graph.model({"x": (TensorProto.FLOAT, [4, 4])}, scores, 4)
    assert [layer.column_axis for layer in quantizable_layers(model)] == axes


X, W, R = (2, 3, 8), (1, 16, 8), (1, 16, 4)
"""Of an LSTM: two steps of three rows of 8, hidden states of 4."""


@pytest.mark.parametrize(
    ("operator", "shapes", "attributes", "work"),
    [
        ("MatMul", {"a": (2, 5, 8), "b": (8, 3), "y": (2, 5, 3)}, {}, 2 * 5 * 3 * 8),
        ("Gemm", {"a": (8, 5), "b": (8, 3), "y": (5, 3)}, {"transA": 1}, 5 * 3 * 8),
        ("FusedMatMul", {"a": (2, 8, 5), "b": (8, 3), "y": (2, 5, 3)}, {"transA": 1}, 240),
        ("Conv", {"a": (1, 4, 9, 9), "b": (6, 2, 3, 3), "y": (1, 6, 7, 7)}, {}, 6 * 49 * 18),
        ("ConvTranspose", {"a": (1, 4, 5, 5), "b": (4, 6, 2, 2), "y": (1,)}, {}, 100 * 24),
        ("Einsum", {"a": (2, 5, 8), "b": (2, 8, 3)}, {"equation": "bij,bjk->bik"}, 240),
        ("Einsum", {"a": (7, 5, 8), "b": (8, 3)}, {"equation": "...ij,jk->...ik"}, 7 * 5 * 8 * 3),
        ("LSTM", {"a": X, "b": W, "c": R}, {"hidden_size": 4}, 2 * 3 * (16 * 8 + 16 * 4)),
        ("GRU", {"a": X, "b": (1, 12, 8), "c": (1, 12, 4)}, {"hidden_size": 4}, 6 * (96 + 48)),
    ],
)
def test_work_is_that_of_every_product(operator, shapes, attributes, work):
    inputs = " ".join(name for name in shapes if name != "y")
    made = node(operator, inputs, "y", **attributes)
    assert set(tensors_of(made)) <= set(shapes)
    assert node_work(made, shapes) == work


@pytest.mark.parametrize(
    ("network", "stays_half"), [(transformer, True), (vit, True), (cnn, False), (chain, False)]
)
def test_attention_has_no_int8_without_qdq_nodes(network, stays_half):
    fault = implicit_int8_fault(network())
    assert (fault is not None) == stays_half
    assert fault is None or "`quantization: explicit`" in fault


def images_of(channels):
    return {"x": (TensorProto.FLOAT, ["batch", channels, 8, 8])}


def reasons(model, x, *, one_sample=False):
    layers = quantizable_layers(model)
    work = multiply_accumulates(model, {"x": np.ones((1, *x), np.float32)})
    return list(left_in_float(model, layers, work, one_sample=one_sample).values())


def second_convolution(inputs, outputs, kernel, groups=1):
    """X -> a wide Conv -> the Conv in question -> y."""
    graph = Graph()
    wide = graph.node("Conv", "x", graph.weight(inputs, 32, 1, 1))
    weight = graph.weight(outputs, inputs // groups, *kernel)
    result = graph.node("Conv", wide, weight, group=groups)
    flat = graph.node("ReduceMean", result, axes=[2, 3], keepdims=0)
    return graph.model(images_of(32), flat, outputs)


NO_KERNEL = ": TensorRT has no faster INT8 kernel for it"


@pytest.mark.parametrize(
    ("inputs", "outputs", "kernel", "groups", "reason"),
    [
        (16, 16, (3, 3), 1, None),
        (32, 8, (1, 1), 1, None),
        (32, 5, (3, 3), 1, None),
        (32, 32, (3, 3), 32, None),
        (64, 64, (1, 1), 4, None),
        (16, 8, (1, 3), 1, "a convolution of 16 channels to 8"),
        (8, 8, (3, 3), 1, "a convolution of 8 channels to 8"),
        (12, 20, (3, 3), 1, "a convolution of 12 channels to 20"),
        (32, 32, (1, 1), 32, "a convolution of 32 groups, 1 channels each, to 32 in all"),
        (36, 36, (3, 3), 36, "a convolution of 36 groups, 1 channels each, to 36 in all"),
    ],
    ids=[
        *("16 to 16", "aligned", "aligned on one side", "depthwise 3x3", "wide groups"),
        *("kernel not square", "narrow", "not aligned", "depthwise 1x1", "depthwise not aligned"),
    ],
)
def test_small_convolution_stays_in_float(inputs, outputs, kernel, groups, reason):
    found = reasons(second_convolution(inputs, outputs, kernel, groups), (32, 8, 8))
    assert found[-1:] == ([] if reason is None else [reason + NO_KERNEL])


@pytest.mark.parametrize("turned", [0, 1])
def test_product_with_one_column_or_with_one_row_of_one_sample_stays_in_float(turned):
    graph = Graph()
    weight = graph.weight(1, 16) if turned else graph.weight(16, 1)
    scores = graph.node("Gemm", "x", weight, transB=turned)
    model = graph.model({"x": (TensorProto.FLOAT, ["batch", 16])}, scores, 1)
    assert reasons(model, (16,)) == ["one column of output" + NO_KERNEL]
    one_row = reasons(cnn(), (3, 8, 8), one_sample=True)
    assert one_row == ["one row of output at the opt shape" + NO_KERNEL]


def test_residual_is_quantized_once_for_the_next_layer_and_the_addition_or_not_at_all():
    model = cnn()
    layers = quantizable_layers(model)
    limits = ranges(model, images(16, seed=1))
    assert int8_tensors(model, layers) == (layers[1].activation,)

    def residual_of(qdq):
        (addition,) = (
            node
            for node in qdq.graph.node
            if node.op_type == "Add" and layers[1].output in node.input
        )
        return addition.input[0]

    qdq = quantize_layers(model, layers, limits)
    producers = {node.output[0]: node for node in qdq.graph.node}
    assert producers[residual_of(qdq)].op_type == "DequantizeLinear"
    assert residual_of(qdq) == producers[layers[1].output].input[0]
    # It stays in float where its convolution does.
    assert residual_of(quantize_layers(model, layers[:1], limits)) == layers[1].activation


def test_average_pool_before_a_convolution_reads_int8_and_a_maximum_what_it_read():
    graph = Graph()
    first = graph.node("Relu", graph.node("Conv", "x", graph.weight(16, 16, 3, 3), pads=[1] * 4))
    pools = [
        graph.node(f"{kind}Pool", first, kernel_shape=[2, 2], strides=[2, 2])
        for kind in ("Average", "Max")
    ]
    branches = [graph.node("Conv", pool, graph.weight(16, 16, 1, 1)) for pool in pools]
    total = graph.node("Concat", *branches, axis=1)
    model = graph.model(images_of(16), graph.node("ReduceMean", total, axes=[2, 3], keepdims=0), 32)
    layers = quantizable_layers(model)
    random = np.random.default_rng(0)
    rows = [{"x": random.standard_normal((16, 8, 8)).astype(np.float32)} for _ in range(8)]
    limits = ranges(model, rows)
    assert int8_tensors(model, layers) == (first,) and first in limits
    for chosen, kind in ((layers, "DequantizeLinear"), (layers[:1], "Relu")):
        qdq = quantize_layers(model, chosen, limits)
        onnx.checker.check_model(qdq, full_check=True)
        producers = {node.output[0]: node for node in qdq.graph.node}
        assert producers[producers[pools[0]].input[0]].op_type == kind
        assert producers[pools[1]].input[0] == first


def downsampled(*, normalized):
    """X -> Conv on both sides of an Add."""
    graph = Graph()
    main, skip = (graph.node("Conv", "x", graph.weight(16, 16, 1, 1)) for _ in range(2))
    source = main
    if normalized:
        ones = [graph.constant(np.ones(16, np.float32)) for _ in range(4)]
        main = graph.node("BatchNormalization", main, *ones)
    total = graph.node("Add", main, skip)
    model = graph.model(images_of(16), graph.node("ReduceMean", total, axes=[2, 3], keepdims=0), 16)
    return model, source, skip


@pytest.mark.parametrize("normalized", [False, True])
def test_a_convolution_beside_another_is_its_residual_and_has_a_range(normalized):
    model, main, skip = downsampled(normalized=normalized)
    layers = quantizable_layers(model)
    (residual,) = residual_inputs(model, layers).values()
    assert (residual.tensor, residual.place, residual.convolution) == (skip, 1, main)
    random = np.random.default_rng(0)
    rows = [{"x": random.standard_normal((16, 8, 8)).astype(np.float32)} for _ in range(8)]
    limits = ranges(model, rows)
    assert set(limits) == {"x", skip} and limits[skip].smoothing is None
    qdq = quantize_layers(model, layers, limits)
    onnx.checker.check_model(qdq, full_check=True)
    assert sum(node.op_type == "QuantizeLinear" for node in qdq.graph.node) == 2


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
