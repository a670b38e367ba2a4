"""Q/DQ networks of every kind, whole and mixed with float, compiled by TensorRT-RTX."""

from __future__ import annotations

import io

import onnx
import pytest

from engine_build.log import Log
from engine_build.onnx_graph.network_store import Network
from engine_build.quantization.layers import quantizable_layers
from engine_build.quantization.qdq import quantize_layers
from engine_build.runner import ProcessRunner
from engine_build.steps.check import compile_checks
from onboarding.model_spec import OptimizationProfileSpec
from tests.unit.engine_build.quantization.graphs import (
    cnn,
    images,
    ranges,
    texts,
    transformer,
    vit,
)

pytestmark = pytest.mark.compile_check
KINDS = {
    "transformer": (transformer, texts, (4, 8, 16)),
    "cnn": (cnn, images, None),
    "vit": (vit, images, None),
}


@pytest.mark.parametrize("every", [1, 2], ids=["all layers", "every other layer"])
@pytest.mark.parametrize("kind", KINDS)
def test_qdq_network_compiles(tmp_path, kind, every):
    make, samples, sequence = KINDS[kind]
    model = make()
    onnx.save(
        quantize_layers(
            model, quantizable_layers(model)[::every], ranges(model, samples(32, seed=1))
        ),
        tmp_path / "model.onnx",
    )
    log = Log(io.StringIO())
    network = Network(
        precision="int8", path=tmp_path / "model.onnx", inputs=(), outputs=(), facts={}
    )
    profiles = (OptimizationProfileSpec(batch=(1, 2, 4), sequence=sequence),)
    assert compile_checks([network], profiles, ProcessRunner(log), log)[0].verdict == "pass"
