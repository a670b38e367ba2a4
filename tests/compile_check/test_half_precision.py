"""Networks written in FP16, compiled by TensorRT-RTX as strongly typed ones."""

from __future__ import annotations

import io

import numpy as np
import onnx
import pytest

from engine_build.datasets.text import TextEncoder
from engine_build.log import Log
from engine_build.onnx_graph.network_store import Network
from engine_build.ort import OrtNetwork
from engine_build.runner import ProcessRunner
from engine_build.sources.export import export
from engine_build.sources.source_model import SourceModel
from engine_build.steps.check import compile_checks
from engine_build.tensorrt.half_precision import half_precision, write_half_precision
from onboarding.model_spec import OptimizationProfileSpec
from tests.unit.engine_build.architectures import (
    TEXT,
    VISION,
    write_text_checkpoint,
    write_vision_network,
)
from tests.unit.engine_build.tensorrt.gpu_machine import TINY, quantized
from tests.unit.engine_build.tensorrt.test_half_precision import (
    MASKED,
    NORMALISATION,
    normal,
    parsed,
)
from tests.unit.engine_build.tiny import sentences

pytestmark = pytest.mark.compile_check
PROFILES = (OptimizationProfileSpec(batch=(1, 2, 4), sequence=(4, 8, 16)),)


def verdict(path):
    log = Log(io.StringIO())
    network = Network(precision="half", path=path, inputs=(), outputs=(), facts={})
    return compile_checks([network], PROFILES, ProcessRunner(log), log)[0].verdict


@pytest.mark.parametrize("source", ["float", "int8"])
def test_text_network_in_fp16_compiles(tmp_path, source):
    write_half_precision(TINY if source == "float" else quantized(tmp_path), tmp_path / "half.onnx")
    assert verdict(tmp_path / "half.onnx") == "pass"


@pytest.mark.parametrize("name", TEXT)
def test_text_architecture_in_fp16_compiles_and_answers_as_before(tmp_path, name):
    checkpoint = write_text_checkpoint(tmp_path / "checkpoint", name)
    model = SourceModel(checkpoint, longest=16, task="text-embedding")
    network = export(model, sentences(20, seed=3), tmp_path, longest=16)
    feed = TextEncoder(network.tokenizer, inputs=network.input_names, longest=16).feed(
        sentences(8, seed=4)
    )
    assert difference(network.path, tmp_path / "half.onnx", feed) < 5e-3
    assert verdict(tmp_path / "half.onnx") == "pass"


@pytest.mark.parametrize("name", VISION)
def test_vision_architecture_in_fp16_compiles_and_answers_as_before(tmp_path, name):
    path = write_vision_network(tmp_path / "model.onnx", name)
    feed = {"image": normal(4, 3, 16, 16)}
    assert difference(path, tmp_path / "half.onnx", feed) < 5e-3
    assert verdict(tmp_path / "half.onnx") == "pass"


def difference(source, target, feed):
    """How far the FP16 network's answers are from the float one's, relative to these."""
    write_half_precision(source, target)
    before, after = OrtNetwork(source).rows(feed), OrtNetwork(target).rows(feed)
    return np.linalg.norm(after - before) / np.linalg.norm(before)


@pytest.mark.parametrize("text", [NORMALISATION, MASKED])
def test_network_that_is_fp32_in_places_compiles(tmp_path, text):
    weights = {"w": normal(64, 64)} if text is NORMALISATION else {}
    onnx.save(half_precision(parsed(text, **weights)), tmp_path / "half.onnx")
    assert verdict(tmp_path / "half.onnx") == "pass"
