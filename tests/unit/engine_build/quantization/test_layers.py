"""Layers for INT8, and multiply-accumulates that are counted by hand."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from engine_build.datasets.dataset import Shape
from engine_build.quantization.explicit import format_share
from engine_build.quantization.layers import (
    implicit_int8_fault,
    multiply_accumulates,
    not_counted,
    quantizable_layers,
    share,
)
from tests.unit.engine_build.quantization.graphs import (
    CHANNELS,
    CLASSES,
    INNER,
    WIDTH,
    Graph,
    chain,
    cnn,
    feed,
    images,
    texts,
    transformer,
    vit,
)


@pytest.mark.parametrize(
    ("model", "operators"),
    [
        (transformer(), ["MatMul"] * 6 + ["Gemm"]),
        (cnn(), ["Conv", "Conv", "Gemm"]),
        (vit(), ["Conv"] + ["MatMul"] * 7),
    ],
    ids=["transformer", "cnn", "vit"],
)
def test_layers_with_weights_are_found_and_products_of_activations_are_not(model, operators):
    assert [layer.operator for layer in quantizable_layers(model)] == operators


@pytest.mark.parametrize(
    ("model", "follows"),
    [
        (transformer(), [False] * 5 + [True, False]),
        *((chain(operator, "Identity"), [False, True]) for operator in ("Relu", "Erf", "Tanh")),
        # A normalisation in between ends the search.
        (chain("Relu", "Softmax"), [False, False]),
    ],
    ids=["transformer", "Relu", "Erf", "Tanh", "Softmax"],
)
def test_layers_behind_an_activation_function_are_found_by_structure(model, follows):
    layers = quantizable_layers(model)
    assert [layer.follows_activation_function for layer in layers] == follows


def gemm_layers(**attributes):
    graph = Graph(0)
    scores = graph.node("Gemm", "x", graph.weight(4, 4), **attributes)
    return quantizable_layers(graph.model({"x": (TensorProto.FLOAT, [4, 4])}, scores, 4))


@pytest.mark.parametrize(("turned", "axis"), [(0, 1), (1, 0)])
def test_gemm_has_its_scales_along_its_output_channels(turned, axis):
    assert gemm_layers(transB=turned)[0].column_axis == axis


@pytest.mark.parametrize("attribute", [{"alpha": 0.5}, {"transA": 1}])
def test_gemm_that_is_more_than_a_product_stays_in_float(attribute):
    assert gemm_layers(**attribute) == ()


def test_weights_in_constant_nodes_and_behind_identities_are_weights():
    model = chain("Relu")
    first, second = model.graph.initializer
    values = numpy_helper.from_array(numpy_helper.to_array(first), "held")
    constant = helper.make_node("Constant", [], ["held"], value=values)
    model.graph.node.insert(0, constant)
    model.graph.node.insert(1, helper.make_node("Identity", [second.name], ["alias"]))
    matmuls = [node for node in model.graph.node if node.op_type == "MatMul"]
    matmuls[0].input[1], matmuls[1].input[1] = "held", "alias"
    onnx.checker.check_model(model)
    assert [layer.weight for layer in quantizable_layers(model)] == ["held", second.name]


def test_double_precision_stays_as_it_is():
    model = chain("Relu")
    first = model.graph.initializer[0]
    doubles = numpy_helper.to_array(first).astype(np.float64)
    first.CopyFrom(numpy_helper.from_array(doubles, first.name))
    assert len(quantizable_layers(model)) == 1


def test_transformer_work_holds_the_products_of_activations():
    tokens = 6
    work = multiply_accumulates(transformer(), feed(texts(1, seed=1, sequence=tokens)))
    projection, ffn = tokens * WIDTH * WIDTH, tokens * WIDTH * INNER
    product = tokens * tokens * WIDTH
    attention = [projection] * 3 + [product] * 2 + [projection]
    assert list(work.values()) == [*attention, ffn, ffn, WIDTH * CLASSES]


def test_convolution_work_is_pixels_times_kernel():
    work = list(multiply_accumulates(cnn(), feed(images(1, seed=1))).values())
    assert work == [64 * CHANNELS * 3 * 9, 64 * CHANNELS**2 * 9, CHANNELS * CLASSES]


def test_share_is_a_part_of_all_work():
    assert share({"a": 3, "b": 1}, ("a",)) == pytest.approx(0.75)


def test_operators_whose_multiply_accumulates_are_not_counted_are_listed():
    model = chain("Relu")
    model.graph.node.append(helper.make_node("Loop", ["n", "b"], ["g"]))
    model.graph.node.append(helper.make_node("DeformConv", ["y", "y", "y"], ["e"]))
    assert not_counted(model) == ("1 DeformConv", "1 Loop")
    facts = {"int8_share_of_matmul_macs": 0.5, "int8_layers": 2, "not_counted": ["1 Loop"]}
    assert format_share(facts, Shape(batch=1)) == (
        "2 layers are INT8: 50.0% of all counted multiply-accumulates at 1; "
        "not counted, and in float: 1 Loop"
    )


def test_an_einsum_beside_a_matmul_is_part_of_the_work():
    model, x = chain("Relu"), np.ones((2, 4), dtype=np.float32)
    before = multiply_accumulates(model, {"x": x})
    model.graph.node.append(helper.make_node("Einsum", ["x", "x"], ["e"], equation="ij,kj->ik"))
    after = multiply_accumulates(model, {"x": x})
    assert after == before | {"e": 2 * 2 * 4}
    assert share(after, before) < 1


@pytest.mark.parametrize(
    ("network", "stays_half"), [(transformer, True), (vit, True), (cnn, False), (chain, False)]
)
def test_attention_has_no_int8_without_qdq_nodes(network, stays_half):
    fault = implicit_int8_fault(network())
    assert (fault is not None) == stays_half
    assert fault is None or "`quantization: explicit`" in fault
