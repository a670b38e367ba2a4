"""Q/DQ networks of every kind, whole and mixed with float, compiled by TensorRT-RTX."""

from __future__ import annotations

import onnx
import pytest

from engine_build.quantization.layers import quantizable_layers, residual_inputs
from engine_build.quantization.qdq import quantize_layers
from engine_build.tensorrt.half_precision import half_precision
from onboarding.model_spec import OptimizationProfileSpec
from tests.compile_check.builds import ROWS, TEXTS, assert_compiles, check_network
from tests.unit.engine_build.quantization import graphs

pytestmark = pytest.mark.compile_check
KINDS = {
    "transformer": (graphs.transformer, graphs.texts, TEXTS),
    "cnn": (graphs.cnn, graphs.images, ROWS),
    "vit": (graphs.vit, graphs.images, ROWS),
}
PRODUCTS = {"transformer": 5, "cnn": 3, "vit": 6}
"""Kernels that multiply by weights; query, key and value are one."""

LARGE = OptimizationProfileSpec(batch=(1, 64, 256))


@pytest.mark.parametrize("step", [1, 2], ids=["all layers", "every other layer"])
@pytest.mark.parametrize("kind", KINDS)
def test_qdq_network_compiles(tmp_path, kind, step):
    network, samples, profile = KINDS[kind]
    model = network()
    ranges, layers = graphs.ranges(model, samples(32, seed=1)), quantizable_layers(model)
    onnx.save(quantize_layers(model, layers[::step], ranges), tmp_path / "model.onnx")
    assert_compiles(tmp_path / "model.onnx", profile)


@pytest.mark.parametrize("kind", KINDS)
def test_products_of_the_fp16_network_are_int8_and_no_layer_only_reformats(tmp_path, kind):
    network, samples, profile = KINDS[kind]
    model = network()
    ranges, layers = graphs.ranges(model, samples(32, seed=1)), quantizable_layers(model)
    paths = {"int8": quantize_layers(model, layers, ranges), "float": model}
    for name, written in paths.items():
        onnx.save(half_precision(written), tmp_path / f"{name}.onnx")
    int8, plain = (check_network(tmp_path / f"{name}.onnx", profile).layers for name in paths)
    assert (int8.int8_products, int8.products) == (PRODUCTS[kind],) * 2
    assert int8.reformats == plain.reformats == plain.int8_products == 0
    assert int8.activation_mib <= plain.activation_mib + 0.1


def test_residual_of_a_convolution_is_kept_in_int8_and_adds_no_layer(tmp_path):
    model = graphs.cnn(channels=64)
    layers = quantizable_layers(model)
    int8 = quantize_layers(model, layers, graphs.ranges(model, graphs.images(32, seed=1)))
    float_residual = onnx.ModelProto.FromString(int8.SerializeToString())
    ((addition, residual),) = residual_inputs(model, layers).items()
    add = next(node for node in float_residual.graph.node if node.output[0] == addition)
    assert add.input[residual.place] != residual.tensor
    add.input[residual.place] = residual.tensor
    paths = {"int8": int8, "float": float_residual}
    for name, written in paths.items():
        onnx.save(half_precision(written), tmp_path / f"{name}.onnx")
    kept, wide = (check_network(tmp_path / f"{name}.onnx", LARGE).layers for name in paths)
    assert (kept.layers, kept.int8_products, kept.reformats) == (wide.layers, 3, 0)
    # 256 images of 64 channels and 64 pixels: a byte each in place of two.
    assert kept.activation_mib <= wide.activation_mib - 0.9


def test_average_pool_before_a_convolution_pools_in_int8_in_fewer_layers(tmp_path):
    graph = graphs.Graph()
    hidden = graph.node("Conv", "x", graph.weight(32, 3, 3, 3), pads=[1] * 4)
    hidden = graph.node("Relu", hidden)
    pooled = graph.node("AveragePool", hidden, kernel_shape=[3, 3], pads=[1] * 4)
    branches = [graph.node("Conv", item, graph.weight(32, 32, 1, 1)) for item in (hidden, pooled)]
    mean = graph.node("ReduceMean", graph.node("Add", *branches), axes=[2, 3], keepdims=0)
    model = graph.model({"x": (onnx.TensorProto.FLOAT, ["batch", 3, 8, 8])}, mean, 32)
    rows = graphs.ranges(model, graphs.images(32, seed=1))
    int8 = quantize_layers(model, quantizable_layers(model), rows)
    float_pool = onnx.ModelProto.FromString(int8.SerializeToString())
    next(node for node in float_pool.graph.node if node.output[0] == pooled).input[0] = hidden
    paths = {"int8": int8, "float": float_pool}
    for name, written in paths.items():
        onnx.save(half_precision(written), tmp_path / f"{name}.onnx")
    kept, wide = (check_network(tmp_path / f"{name}.onnx", LARGE).layers for name in paths)
    assert (kept.int8_products, kept.reformats) == (3, 0) and kept.layers < wide.layers
