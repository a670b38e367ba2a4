"""Layers that INT8 makes no faster, and residuals of convolutions."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from engine_build.quantization.layers import multiply_accumulates, quantizable_layers
from engine_build.quantization.placement import (
    int8_tensors,
    left_in_float,
    residual_inputs,
)
from engine_build.quantization.qdq import quantize_layers
from tests.unit.engine_build.quantization.graphs import (
    Graph,
    cnn,
    images,
    ranges,
    transformer,
    vit,
)


def images_of(channels):
    return {"x": (TensorProto.FLOAT, ["batch", channels, 8, 8])}


def reasons(model, x, *, one_sample=False):
    layers = quantizable_layers(model)
    work = multiply_accumulates(model, {"x": np.ones((1, *x), np.float32)})
    return list(left_in_float(model, layers, work, one_sample=one_sample).values())


def second_convolution(inputs, outputs, kernel, groups=1):
    """X -> a wide Conv -> the Conv in question -> y."""
    graph = Graph(0)
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


def test_first_convolution_of_an_image_is_int8():
    assert reasons(cnn(), (3, 8, 8)) == []
    # Behind it eight channels are too few.
    eight = reasons(cnn(channels=8), (3, 8, 8))
    assert eight == ["a convolution of 8 channels to 8" + NO_KERNEL]


@pytest.mark.parametrize("turned", [0, 1])
def test_product_with_one_column_or_with_one_row_of_one_sample_stays_in_float(turned):
    graph = Graph(0)
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
    graph = Graph(0)
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


def downsampled(*, also_read=False, normalized=False):
    """X -> Conv on both sides of an Add."""
    graph = Graph(0)
    main, skip = (graph.node("Conv", "x", graph.weight(16, 16, 1, 1)) for _ in range(2))
    source = main
    if normalized:
        ones = [graph.constant(np.ones(16, np.float32)) for _ in range(4)]
        main = graph.node("BatchNormalization", main, *ones)
    total = graph.node("Add", main, skip)
    if also_read:
        total = graph.node("Add", total, graph.node("Relu", main))
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


def test_neither_convolutions_that_others_read_nor_matrix_products_have_a_residual():
    model, main, skip = downsampled(also_read=True)
    # The other side of the Add is a convolution that nothing else reads.
    (residual,) = residual_inputs(model, quantizable_layers(model)).values()
    assert (residual.tensor, residual.convolution) == (main, skip)
    for network in (transformer(), vit()):
        assert residual_inputs(network, quantizable_layers(network)) == {}
