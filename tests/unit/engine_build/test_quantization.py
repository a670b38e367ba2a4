"""Ranges, smoothing and the Q/DQ network."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from engine_build.accuracy import rows_in_order
from engine_build.calibration import BINS, entropy_threshold, percentile_threshold
from engine_build.errors import SourceFault
from engine_build.feed import Shape
from engine_build.matmuls import weighted_matmuls
from engine_build.onnx_source import refuse_broken_weights, tensor_records
from engine_build.ort import OrtNetwork
from engine_build.quantization import int8_share, quantize, smoothing
from engine_build.text import TextEncoder
from tests.unit.engine_build.tiny import sentences


@pytest.fixture(scope="module")
def float_network(built):
    from engine_build.networks import Network

    path = next(built.store.glob("networks/*/*-tokenizer.json"))
    network = next(path.parent.glob("*-model.onnx"))
    model = onnx.load(network)
    inputs, outputs = tensor_records(model.graph.input), tensor_records(model.graph.output)
    return Network(precision="float", path=network, inputs=inputs, outputs=outputs, facts={}, tokenizer=path)


@pytest.fixture(scope="module")
def encoder(float_network):
    return TextEncoder(float_network.tokenizer, inputs=float_network.input_names, longest=16)


def chain(*operators):
    """X -> MatMul -> operators -> MatMul -> Y, nameless nodes."""
    nodes, tensor = [helper.make_node("MatMul", ["x", "w1"], ["t0"])], "t0"
    for index, operator in enumerate(operators, 1):
        nodes.append(helper.make_node(operator, [tensor], [f"t{index}"]))
        tensor = f"t{index}"
    nodes.append(helper.make_node("MatMul", [tensor, "w2"], ["y"]))
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", 4]) for name in ("x", "y")]
    weights = [numpy_helper.from_array(np.eye(4, dtype=np.float32), name) for name in ("w1", "w2")]
    graph = helper.make_graph(nodes, "chain", values[:1], values[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize("operator", ["Relu", "Erf", "Tanh"])
def test_matmul_after_an_activation_function_is_found_by_structure(operator):
    assert [each.follows_activation_function for each in weighted_matmuls(chain(operator, "Identity"))] == [False, True]


def test_normalisation_between_ends_the_search():
    assert [each.follows_activation_function for each in weighted_matmuls(chain("Relu", "Softmax"))] == [False, False]


def test_bert_keeps_its_ffn_outputs_and_attention_products_in_float(float_network, encoder, tmp_path):
    model = onnx.load(float_network.path)
    matmuls = weighted_matmuls(model)
    assert (len(matmuls), sum(each.follows_activation_function for each in matmuls)) == (12, 2)
    chosen = [each for each in matmuls if not each.follows_activation_function]
    sequence, width, inner = 8, 32, 64
    int8 = sequence * (4 * width * width + width * inner)
    every = int8 + sequence * inner * width + 2 * sequence * sequence * width
    feed = encoder.shaped(sentences(9, seed=3), Shape(batch=1, sequence=sequence))
    assert int8_share(model, chosen, feed) == pytest.approx(int8 / every)


@pytest.mark.parametrize("method", ["max", "percentile", "entropy"])
def test_qdq_network_is_symmetric_and_close(float_network, encoder, tmp_path, method):
    result = quantize(float_network, encoder, sentences(48, seed=1), tmp_path, method=method, shape=Shape(batch=2, sequence=8))
    model = onnx.load(result.path)
    constants = {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}
    grids = [node for node in model.graph.node if node.op_type in ("QuantizeLinear", "DequantizeLinear")]
    assert all((constants[node.input[2]] == 0).all() and constants[node.input[2]].dtype == np.int8 for node in grids)
    # Two layers: query, key and value share one input; attention output; FFN input.
    assert sum(node.op_type == "QuantizeLinear" for node in grids) == 2 * 3
    assert sum(node.op_type == "DequantizeLinear" for node in grids) == 2 * (3 + 5)
    weights = [node for node in grids if constants.get(node.input[0]) is not None]
    assert all(constants[node.input[1]].shape == (constants[node.input[0]].shape[1],) for node in weights)
    texts = sentences(50, seed=2)
    found, wanted = (rows_in_order(OrtNetwork(path).rows, encoder, texts, 8) for path in (result.path, float_network.path))
    assert 0.99 < (found * wanted).sum(axis=1).min() < 0.9999999
    assert result.facts["method"] == method


def test_smoothing_moves_the_range_of_a_loud_channel_into_the_weight():
    scale = smoothing(np.array([100.0, 1.0]), [np.ones((2, 3), dtype=np.float32)])
    assert scale[0] / scale[1] == pytest.approx(100**0.7, rel=1e-4)


def test_entropy_clips_a_long_tail_where_max_does_not():
    values = np.abs(np.random.default_rng(0).standard_normal(200_000))
    values[:3] = 40.0
    counts = np.histogram(values, bins=BINS, range=(0, 40.0))[0]
    assert 2.0 < entropy_threshold(counts, 40.0) < 20.0
    assert 3.0 < percentile_threshold(counts, 40.0) < 5.0


def test_entropy_keeps_a_range_that_is_used_evenly():
    counts = np.full(BINS, 1000)
    assert entropy_threshold(counts, 1.0) > 0.95


def test_refuses_a_network_without_a_weighted_matmul(encoder, tmp_path, float_network):
    model = chain("Relu")
    del model.graph.initializer[:]
    model.graph.input.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 4]) for name in ("w1", "w2"))
    onnx.save(model, tmp_path / "bare.onnx")
    import dataclasses

    bare = dataclasses.replace(float_network, path=tmp_path / "bare.onnx")
    with pytest.raises(SourceFault, match="no weighted MatMul"):
        quantize(bare, encoder, ["a cat"], tmp_path, method="max", shape=Shape(batch=2, sequence=8))


def test_refuses_nan_in_the_weights_of_an_onnx_file():
    model = chain("Relu")
    model.graph.initializer[1].CopyFrom(numpy_helper.from_array(np.full((4, 4), np.nan, dtype=np.float32), "w2"))
    with pytest.raises(SourceFault, match="weight w2 holds NaN or Inf"):
        refuse_broken_weights(model)
