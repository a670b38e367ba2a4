"""Layers for INT8, and multiply-accumulates that are counted by hand."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from engine_build.datasets.dataset import Shape
from engine_build.quantization.explicit import format_share
from engine_build.quantization.layers import (
    COUNTED,
    NOT_COUNTED,
    implicit_int8_fault,
    multiply_accumulates,
    node_work,
    not_counted,
    quantizable_layers,
    share,
    tensors_of,
)
from tests.unit.engine_build.graphs import node
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
    graph = Graph(0)
    scores = graph.node("Gemm", "x", graph.weight(4, 4), **attributes)
    model = graph.model({"x": (TensorProto.FLOAT, [4, 4])}, scores, 4)
    assert [layer.column_axis for layer in quantizable_layers(model)] == axes


def test_weights_stand_in_constant_nodes_and_behind_identities_and_doubles_stay():
    model = chain("Relu")
    first, second = model.graph.initializer
    values = numpy_helper.from_array(numpy_helper.to_array(first), "held")
    model.graph.node.insert(0, helper.make_node("Constant", [], ["held"], value=values))
    model.graph.node.insert(1, helper.make_node("Identity", [second.name], ["alias"]))
    matmuls = [node for node in model.graph.node if node.op_type == "MatMul"]
    matmuls[0].input[1], matmuls[1].input[1] = "held", "alias"
    onnx.checker.check_model(model)
    assert [layer.weight for layer in quantizable_layers(model)] == ["held", second.name]
    doubles = numpy_helper.to_array(second).astype(np.float64)
    second.CopyFrom(numpy_helper.from_array(doubles, second.name))
    assert [layer.weight for layer in quantizable_layers(model)] == ["held"]


def test_work_holds_products_of_activations_pixels_and_einsums():
    tokens = 6
    projection, ffn = tokens * WIDTH * WIDTH, tokens * WIDTH * INNER
    attention = [projection] * 3 + [tokens * tokens * WIDTH] * 2 + [projection]
    work = multiply_accumulates(transformer(), feed(texts(1, seed=1, sequence=tokens)))
    assert list(work.values()) == [*attention, ffn, ffn, WIDTH * CLASSES]
    work = multiply_accumulates(cnn(), feed(images(1, seed=1)))
    convolutions = [64 * CHANNELS * 3 * 9, 64 * CHANNELS**2 * 9]
    assert list(work.values()) == [*convolutions, CHANNELS * CLASSES]
    model, x = chain("Relu"), np.ones((2, 4), dtype=np.float32)
    before = multiply_accumulates(model, {"x": x})
    model.graph.node.append(helper.make_node("Einsum", ["x", "x"], ["e"], equation="ij,kj->ik"))
    after = multiply_accumulates(model, {"x": x})
    assert after == before | {"e": 2 * 2 * 4} and share(after, before) < 1
    assert share({"a": 3, "b": 1}, ("a",)) == pytest.approx(0.75) and share({}, ()) == 0


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


def test_an_operator_is_counted_or_listed_as_not_counted():
    known = {schema.name for schema in onnx.defs.get_all_schemas()}
    own = {"FusedMatMul", "FusedGemm", "FusedConv", "MultiHeadAttention", "MatMulNBits"}
    assert {*COUNTED, *NOT_COUNTED} - own <= known and not set(COUNTED) & set(NOT_COUNTED)
    model = chain("Relu")
    model.graph.node.append(helper.make_node("Loop", ["n", "b"], ["g"]))
    model.graph.node.append(helper.make_node("DeformConv", ["y", "y", "y"], ["e"]))
    assert not_counted(model) == ("1 DeformConv", "1 Loop")
    facts = {"int8_share_of_matmul_macs": 0.5, "int8_layers": 2, "not_counted": ["1 Loop"]}
    assert format_share(facts, Shape(batch=1)) == (
        "2 layers are INT8: 50.0% of all counted multiply-accumulates at 1; "
        "not counted, and in float: 1 Loop"
    )


@pytest.mark.parametrize(
    ("network", "stays_half"), [(transformer, True), (vit, True), (cnn, False), (chain, False)]
)
def test_attention_has_no_int8_without_qdq_nodes(network, stays_half):
    fault = implicit_int8_fault(network())
    assert (fault is not None) == stays_half
    assert fault is None or "`quantization: explicit`" in fault
