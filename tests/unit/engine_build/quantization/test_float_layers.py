"""Layers put back into float: the same answers as a network that was never quantized there."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from engine_build.ort import OrtNetwork
from engine_build.quantization.float_layers import layer_roles, restore_layers, restored_facts
from engine_build.quantization.fp8 import (
    activation_maxima,
    at_fp8_opset,
    fp8_layers,
    quantize_fp8,
)
from engine_build.quantization.layers import quantizable_layers
from engine_build.quantization.qdq import quantize_layers
from tests.unit.engine_build.quantization.graphs import KINDS, constants, feed, layer, ranges


@pytest.fixture(params=KINDS)
def kind(request):
    """A network, its ranges and a feed."""
    make, samples, _ = KINDS[request.param]
    model = make()
    return model, ranges(model, samples(64, seed=1)), feed(samples(64, seed=2))


def rows(model, samples):
    return OrtNetwork(model.SerializeToString()).rows(samples)


def test_layers_in_float_answer_as_if_the_others_alone_were_quantized(kind):
    model, limits, samples = kind
    layers = quantizable_layers(model)
    whole = quantize_layers(model, layers, limits)
    for place in (0, 1, -1):
        left = [layer for layer in layers if layer != layers[place]]
        expected = rows(quantize_layers(model, left, limits), samples)
        restored = restore_layers(whole, model, [layers[place]])
        assert rows(restored, samples) == pytest.approx(expected, abs=1e-4)
    restored = restore_layers(whole, model, layers)
    onnx.checker.check_model(restored, full_check=True)
    assert rows(restored, samples) == pytest.approx(rows(model, samples), abs=1e-5)
    assert len(restored.graph.node) == len(model.graph.node)
    assert set(constants(restored)) == set(constants(model))


def test_fp8_layers_go_back_to_float_too():
    make, samples, _ = KINDS["transformer"]
    batch, source = feed(samples(16, seed=1)), make()
    model = at_fp8_opset(make())
    layers = fp8_layers(model)
    fp8 = quantize_fp8(model, layers, activation_maxima(model, layers, [batch]))
    before = rows(fp8, batch)
    restored = restore_layers(fp8, source, layers)
    assert "QuantizeLinear" not in {node.op_type for node in restored.graph.node}
    assert rows(restored, batch) == pytest.approx(rows(source, batch), abs=1e-5)
    assert np.abs(before - rows(source, batch)).max() > 1e-4


def test_a_role_is_the_same_layer_of_every_block_or_stage_and_what_reads_its_activation():
    read = {"query": "hidden", "key": "hidden", "output": "context", "inner": "normal"}
    roles = layer_roles(
        [
            layer(f"/layer.{block}/{name}", f"{activation}.{block}")
            for block in range(12)
            for name, activation in read.items()
        ]
    )
    assert {name: len(members) for name, members in roles.items()} == {
        "/layer.*/query": 24,
        "/layer.*/output": 12,
        "/layer.*/inner": 12,
    }
    first = [item.node for item in roles["/layer.*/query"]][:3]
    assert first == ["/layer.0/query", "/layer.0/key", "/layer.1/query"]
    layers = [
        layer(f"/stages.{stage}/layers.{index}/convolution", f"{stage}.{index}", "Conv")
        for stage in range(2)
        for index in range(3)
    ]
    layers.append(layer("/stages.1/shortcut", "1.0", "Conv"))
    sizes = {name: len(members) for name, members in layer_roles(layers).items()}
    assert sizes == {"/stages.0/layers.*/convolution": 3, "/stages.1/layers.*/convolution": 4}


def test_facts_say_which_layers_went_back():
    facts = {
        "int8_layers": 2,
        "float_layers": ["scores"],
        "int8_share_of_matmul_macs": 0.9,
        "layers": [{"node": "a", "int8": True, "why": "x"}, {"node": "b", "int8": True}],
    }
    work = {"a": 60, "b": 30, "scores": 10}
    changed = restored_facts(facts, work, ["a"])
    assert (changed["int8_layers"], changed["int8_share_of_matmul_macs"]) == (1, 0.3)
    assert changed["float_layers"] == ["a", "scores"]
    assert changed["layers"][0]["int8"] is False and "faster" in changed["layers"][0]["why"]
    assert changed["layers"][1] == facts["layers"][1] and facts["int8_layers"] == 2
