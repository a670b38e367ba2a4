"""Q/DQ networks of every kind, whole and mixed with float, compiled by TensorRT-RTX."""

from __future__ import annotations

import onnx
import pytest

from engine_build.quantization.layers import quantizable_layers
from engine_build.quantization.qdq import quantize_layers
from tests.compile_check.builds import ROWS, TEXTS, assert_compiles
from tests.unit.engine_build.quantization import graphs

pytestmark = pytest.mark.compile_check
KINDS = {
    "transformer": (graphs.transformer, graphs.texts, TEXTS),
    "cnn": (graphs.cnn, graphs.images, ROWS),
    "vit": (graphs.vit, graphs.images, ROWS),
}


@pytest.mark.parametrize("step", [1, 2], ids=["all layers", "every other layer"])
@pytest.mark.parametrize("kind", KINDS)
def test_qdq_network_compiles(tmp_path, kind, step):
    network, samples, profile = KINDS[kind]
    model = network()
    ranges, layers = graphs.ranges(model, samples(32, seed=1)), quantizable_layers(model)
    onnx.save(quantize_layers(model, layers[::step], ranges), tmp_path / "model.onnx")
    assert_compiles(tmp_path / "model.onnx", profile)
