"""The Q/DQ network: symmetric, by output channel, close; and one network for every mixture."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from engine_build.errors import SourceFault
from engine_build.onnx_graph.onnx_file import QDQ
from engine_build.ort import OrtNetwork
from engine_build.quantization.layers import quantizable_layers
from engine_build.quantization.qdq import SwitchableNetwork, quantize_layers, with_gates
from engine_build.quantization.smoothing import Smoothing
from tests.unit.engine_build.quantization.graphs import (
    KINDS,
    chain,
    constants,
    feed,
    ranges,
    texts,
    transformer,
)


@pytest.fixture(params=KINDS)
def kind(request):
    """A network, the same with all layers in INT8, and a feed."""
    make, samples, _ = KINDS[request.param]
    model = make()
    limits = ranges(model, samples(64, seed=1))
    return (
        model,
        quantize_layers(model, quantizable_layers(model), limits),
        feed(samples(64, seed=2)),
    )


def qdq_nodes(model):
    return [node for node in model.graph.node if node.op_type in QDQ]


def rows(model, samples):
    return OrtNetwork(model.SerializeToString()).rows(samples)


def test_network_is_symmetric_by_output_channel_and_answers_closely_and_not_the_same(kind):
    model, qdq, samples = kind
    onnx.checker.check_model(qdq, full_check=True)
    values = constants(qdq)
    for node in qdq_nodes(qdq):
        _, scale, zero = (values.get(name) for name in node.input)
        assert zero.dtype == np.int8 and not zero.any()
        assert scale.dtype == np.float32 and (scale > 0).all()
    nodes = [node for node in qdq_nodes(qdq) if node.input[0] in values]
    assert len(nodes) == len(quantizable_layers(model))
    for node in nodes:
        axis = next(item.i for item in node.attribute if item.name == "axis")
        weight = values[node.input[0]]
        assert weight.dtype == np.int8
        assert values[node.input[1]].shape == (weight.shape[axis],)
        others = tuple(other for other in range(weight.ndim) if other != axis)
        # Rounded to make up for another row, the largest may be one count less.
        assert (np.abs(weight.astype(int)).max(axis=others) >= 126).all()
    assert not {layer.weight for layer in quantizable_layers(model)} & set(values)
    before, after = rows(model, samples), rows(qdq, samples)
    lengths = np.linalg.norm(before, axis=1) * np.linalg.norm(after, axis=1)
    assert ((before * after).sum(axis=1) / lengths).mean() > 0.99
    assert np.abs(before - after).max() > 1e-5


def test_layers_that_share_an_activation_quantize_it_once_and_one_left_out_stays_float():
    model = transformer()
    before, limits = model.SerializeToString(), ranges(model, texts(16, seed=1))
    layers = quantizable_layers(model)
    qdq = quantize_layers(model, layers, limits)
    operators = [node.op_type for node in qdq.graph.node]
    # Query, key and value; attention output; FFN input; FFN output; the scores.
    assert operators.count("QuantizeLinear") == 5
    assert operators.count("DequantizeLinear") == 5 + 7
    assert model.SerializeToString() == before, "the source network stays as it was"
    left = next(layer for layer in layers if layer.follows_activation_function)
    qdq = quantize_layers(model, [layer for layer in layers if layer != left], limits)
    node = next(node for node in qdq.graph.node if node.output[0] == left.output)
    assert node.input[1] == left.weight and left.weight in constants(qdq)


def test_what_a_shift_takes_goes_into_the_bias_where_there_is_one():
    model = transformer()
    layers, limits = quantizable_layers(model), ranges(model, texts(32, seed=1))
    weights = constants(model)
    widths = {layer.activation: layer.rows(weights[layer.weight]).shape[0] for layer in layers}
    shifted = {
        name: replace(
            limit,
            smoothing=Smoothing(
                alpha=0.5,
                scales=np.ones(widths[name], dtype=np.float32),
                shifts=np.full(widths[name], 0.25, dtype=np.float32),
            ),
        )
        for name, limit in limits.items()
    }
    qdq = quantize_layers(model, layers, shifted)
    adds = [node for node in qdq.graph.node if node.op_type == "Add"]
    before = [node for node in model.graph.node if node.op_type == "Add"]
    away = [node for node in adds if node.input[1].endswith("_shifted_away")]
    # The Gemm's bias is no Add, and each activation has one for its offset.
    assert [node.output[0] for node in away] == [layers[-1].output]
    assert len(adds) == len(before) + len(shifted) + len(away)


def test_counts_of_the_calibration_stand_in_the_network_and_nearest_ones_without_them():
    model = transformer()
    layers, limits = quantizable_layers(model), ranges(model, texts(16, seed=1))
    # The last layer is a Gemm with transB: its weight is [columns, channels].
    for layer in (layers[0], layers[-1]):
        rounded = limits[layer.activation].weights[layer.output]
        given = {layer.output: rounded - np.sign(rounded)}
        limit = replace(limits[layer.activation], weights=given)
        values = constants(quantize_layers(model, [layer], limits | {layer.activation: limit}))
        assert np.array_equal(
            layer.rows(values[f"{layer.output}_weight_int8"]), given[layer.output]
        )
        limit = replace(limits[layer.activation], weights={})
        nearest = constants(quantize_layers(model, [layer], limits | {layer.activation: limit}))
        counts = layer.rows(nearest[f"{layer.output}_weight_int8"]).astype(int)
        assert np.abs(counts).max() == 127 and np.abs(counts - rounded).max() <= 1


def test_refuses_an_opset_without_scales_by_channel():
    model = chain("Relu")
    model.opset_import[0].version = 12
    with pytest.raises(SourceFault, match="opset 12; INT8 by channel needs 13"):
        quantize_layers(model, quantizable_layers(model), {})


@pytest.mark.parametrize("kind", KINDS)
def test_switched_layers_answer_as_the_network_written_with_them(kind):
    make, samples, _ = KINDS[kind]
    model, values = make(), samples(16, seed=2)
    limits, layers = ranges(model, samples(32, seed=1)), quantizable_layers(model)
    switchable = SwitchableNetwork(model, layers, limits)
    # A network that no message can hold is loaded from files.
    from_files = SwitchableNetwork(model, layers, limits, largest=1000)
    for chosen in (layers, layers[::2], layers[-1:]):
        expected = rows(quantize_layers(model, chosen, limits), feed(values))
        nodes = [layer.node for layer in chosen]
        actual = switchable.rows([feed(values)], nodes)
        assert np.array_equal(from_files.rows([feed(values)], nodes), actual)
        # ONNX Runtime may add in another order, which turns a rounding here and there.
        assert np.abs(actual - expected).max() < 0.02 * np.abs(expected).max()
    # All switched off is the float network, and the rows of all feeds come in order.
    float_rows = switchable.rows([feed(values[:3]), feed(values[3:])], ())
    assert np.allclose(float_rows, rows(model, feed(values)), atol=1e-5)


def test_a_weight_that_only_a_branch_reads_stays_in_the_network():
    model = chain("Relu")
    for name, value in (("outer", np.full(1, 3.0, np.float32)), ("condition", np.array(True))):
        model.graph.initializer.append(numpy_helper.from_array(value, name))
    output = helper.make_tensor_value_info("copy", TensorProto.FLOAT, None)
    identity = helper.make_node("Identity", ["outer"], ["copy"])
    branch = helper.make_graph([identity], "branch", [], [output])
    last = model.graph.node[-1]
    result, last.output[0] = last.output[0], "before"
    model.graph.node.extend(
        [
            helper.make_node(
                "If", ["condition"], ["chosen"], then_branch=branch, else_branch=branch
            ),
            helper.make_node("Add", ["before", "chosen"], [result]),
        ]
    )
    layers = quantizable_layers(model)
    limits = ranges(model, [{"x": np.full(4, value, np.float32)} for value in range(1, 9)])
    for network in (quantize_layers(model, layers, limits), with_gates(model, layers, limits)):
        onnx.checker.check_model(network)
        assert "outer" in constants(network)
