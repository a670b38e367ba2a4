"""The Q/DQ network: symmetric, by output channel, close, and nothing more than that.

One network for every mixture of float and INT8.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from engine_build.errors import SourceFault
from engine_build.ort import OrtNetwork
from engine_build.quantization.layers import quantizable_layers
from engine_build.quantization.qdq import SwitchableNetwork, quantize_layers, with_gates
from tests.unit.engine_build.quantization.graphs import chain, cnn, images, texts, transformer, vit
from tests.unit.engine_build.quantization.test_calibration import feed, ranges

KINDS = {"transformer": (transformer, texts), "cnn": (cnn, images), "vit": (vit, images)}


@pytest.fixture(params=KINDS)
def kind(request):
    make, samples = KINDS[request.param]
    model = make()
    found = ranges(model, samples(64, seed=1))
    return (
        model,
        quantize_layers(model, quantizable_layers(model), found),
        feed(samples(64, seed=2)),
    )


def constants(model):
    return {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}


def grids(model):
    return [
        node for node in model.graph.node if node.op_type in ("QuantizeLinear", "DequantizeLinear")
    ]


def test_every_zero_point_is_int8_zero_and_every_scale_float32(kind):
    _, qdq, _ = kind
    values = constants(qdq)
    assert all(
        values[node.input[2]].dtype == np.int8 and not values[node.input[2]].any()
        for node in grids(qdq)
    )
    assert all(
        values[node.input[1]].dtype == np.float32 and (values[node.input[1]] > 0).all()
        for node in grids(qdq)
    )


def test_weights_are_int8_with_one_scale_for_each_output_channel(kind):
    model, qdq, _ = kind
    values = constants(qdq)
    weights = [node for node in grids(qdq) if node.input[0] in values]
    assert len(weights) == len(quantizable_layers(model))
    for node in weights:
        axis = next(each.i for each in node.attribute if each.name == "axis")
        weight = values[node.input[0]]
        assert weight.dtype == np.int8
        assert values[node.input[1]].shape == (weight.shape[axis],)
        others = tuple(each for each in range(weight.ndim) if each != axis)
        assert (np.abs(weight.astype(int)).max(axis=others) == 127).all()


def test_float_weights_of_int8_layers_are_gone(kind):
    model, qdq, _ = kind
    assert not {layer.weight for layer in quantizable_layers(model)} & set(constants(qdq))


def test_answers_are_close_and_not_the_same(kind):
    model, qdq, given = kind
    onnx.checker.check_model(qdq, full_check=True)
    wanted, found = (OrtNetwork(each.SerializeToString()).rows(given) for each in (model, qdq))
    cosines = (
        (wanted * found).sum(axis=1)
        / np.linalg.norm(wanted, axis=1)
        / np.linalg.norm(found, axis=1)
    )
    assert cosines.mean() > 0.99
    assert np.abs(wanted - found).max() > 1e-5


def test_layers_that_share_an_activation_quantize_it_once():
    model = transformer()
    qdq = quantize_layers(model, quantizable_layers(model), ranges(model, texts(16, seed=1)))
    # Query, key and value; attention output; FFN input; FFN output; the scores.
    assert sum(node.op_type == "QuantizeLinear" for node in qdq.graph.node) == 5
    assert sum(node.op_type == "DequantizeLinear" for node in qdq.graph.node) == 5 + 7


def test_layers_left_out_keep_their_float_weights():
    model = transformer()
    layers = quantizable_layers(model)
    selected = next(layer for layer in layers if layer.follows_activation_function)
    chosen = [
        layer
        for layer in quantizable_layers(model)
        if layer is not selected and layer.node != selected.node
    ]
    qdq = quantize_layers(model, chosen, ranges(model, texts(16, seed=1)))
    assert (
        next(node for node in qdq.graph.node if node.output[0] == selected.output).input[1]
        == selected.weight
    )
    assert selected.weight in constants(qdq)


def test_the_source_network_stays_as_it_was():
    model = transformer()
    before = model.SerializeToString()
    quantize_layers(model, quantizable_layers(model), ranges(model, texts(16, seed=1)))
    assert model.SerializeToString() == before


def test_refuses_an_opset_without_scales_by_channel():
    model = chain("Relu")
    model.opset_import[0].version = 12
    with pytest.raises(SourceFault, match="opset 12; INT8 by channel needs 13"):
        quantize_layers(model, quantizable_layers(model), {})


CASES = [(transformer(), texts), (cnn(), images), (vit(), images)]
IDS = ["transformer", "cnn", "vit"]


@pytest.mark.parametrize(("model", "samples"), CASES, ids=IDS)
def test_switched_layers_answer_as_the_network_written_with_them(model, samples):
    found, given = ranges(model, samples(32, seed=1)), feed(samples(16, seed=2))
    every = quantizable_layers(model)
    switchable = SwitchableNetwork(model, every, found)
    for chosen in (every, every[::2], every[-1:]):
        wanted = OrtNetwork(quantize_layers(model, chosen, found).SerializeToString()).rows(given)
        answered = switchable.rows([given], [layer.node for layer in chosen])
        # ONNX Runtime may add in another order, which turns a rounding here and there.
        assert np.abs(answered - wanted).max() < 0.02 * np.abs(wanted).max()


@pytest.mark.parametrize(("model", "samples"), CASES, ids=IDS)
def test_all_switched_off_is_the_float_network(model, samples):
    given = feed(samples(16, seed=2))
    switchable = SwitchableNetwork(
        model, quantizable_layers(model), ranges(model, samples(32, seed=1))
    )
    assert np.allclose(
        switchable.rows([given], ()), OrtNetwork(model.SerializeToString()).rows(given), atol=1e-5
    )


def test_rows_of_all_feeds_come_in_order():
    model, samples = CASES[0]
    switchable = SwitchableNetwork(
        model, quantizable_layers(model), ranges(model, samples(32, seed=1))
    )
    rows = samples(8, seed=2)
    apart, together = (
        switchable.rows([feed(rows[:3]), feed(rows[3:])], ()),
        switchable.rows([feed(rows)], ()),
    )
    assert np.allclose(apart, together, atol=1e-5)


def test_refuses_a_network_that_no_message_can_hold():
    model, samples = CASES[0]
    with pytest.raises(
        SourceFault, match=r"float and INT8 together has .* GB, .*; leave sensitivity_search out"
    ):
        SwitchableNetwork(
            model, quantizable_layers(model), ranges(model, samples(8, seed=1)), largest=1000
        )


def test_a_weight_that_only_a_branch_reads_stays_in_the_network():
    model = chain("Relu")
    outer = numpy_helper.from_array(np.full(1, 3.0, dtype=np.float32), "outer")
    model.graph.initializer.append(outer)
    branches = {
        name: helper.make_graph(
            [helper.make_node("Identity", ["outer"], [f"{name}_out"])],
            name,
            [],
            [helper.make_tensor_value_info(f"{name}_out", TensorProto.FLOAT, None)],
        )
        for name in ("then_branch", "else_branch")
    }
    condition = numpy_helper.from_array(np.array(True), "condition")
    model.graph.initializer.append(condition)
    last = model.graph.node[-1]
    output = last.output[0]
    last.output[0] = "before"
    model.graph.node.extend(
        [
            helper.make_node("If", ["condition"], ["branch"], **branches),
            helper.make_node("Add", ["before", "branch"], [output]),
        ]
    )
    layers = quantizable_layers(model)
    rows = [{"x": np.ones(4, dtype=np.float32) * place} for place in range(1, 9)]
    found = ranges(model, rows)
    for network in (quantize_layers(model, layers, found), with_gates(model, layers, found)):
        onnx.checker.check_model(network)
        assert "outer" in {tensor.name for tensor in network.graph.initializer}
