"""Networks written in FP16, compiled by TensorRT-RTX as strongly typed ones."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from engine_build.datasets.text import TextEncoder
from engine_build.ort import OrtNetwork
from engine_build.sources.export import export
from engine_build.sources.source_model import SourceModel
from engine_build.tensorrt.half_precision import half_precision, write_half_precision
from tests.compile_check.builds import ROWS, TEXTS, assert_compiles
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
    parse_model,
)
from tests.unit.engine_build.tiny import sample_texts

pytestmark = pytest.mark.compile_check


@pytest.fixture
def half(tmp_path):
    return tmp_path / "half.onnx"


@pytest.mark.parametrize("source", ["float", "int8"])
def test_text_network_in_fp16_compiles(tmp_path, half, source):
    write_half_precision(TINY if source == "float" else quantized(tmp_path), half)
    assert_compiles(half)


@pytest.mark.parametrize("name", TEXT)
def test_text_architecture_compiles_in_fp16_too_and_answers_as_before(tmp_path, half, name):
    checkpoint = write_text_checkpoint(tmp_path / "checkpoint", name)
    model = SourceModel(checkpoint, longest=16, task="text-embedding")
    network = export(model, sample_texts(20, seed=3), tmp_path, longest=16)
    encoder = TextEncoder(network.tokenizer, inputs=network.input_names, longest=16)
    assert_stays(network.path, half, encoder.feed(sample_texts(8, seed=4)))


@pytest.mark.parametrize("name", VISION)
def test_vision_architecture_compiles_in_fp16_too_and_answers_as_before(tmp_path, half, name):
    path = write_vision_network(tmp_path / "model.onnx", name)
    assert_stays(path, half, {"image": normal(4, 3, 16, 16)})


def assert_stays(source, target, feed):
    """Both networks compile, and the answers of that in FP16 are near the float one's."""
    profile = ROWS if "image" in feed else TEXTS
    assert_compiles(source, profile)
    write_half_precision(source, target)
    before, after = OrtNetwork(source).rows(feed), OrtNetwork(target).rows(feed)
    assert np.linalg.norm(after - before) < 5e-3 * np.linalg.norm(before)
    assert_compiles(target, profile)


@pytest.mark.parametrize("text", [NORMALISATION, MASKED])
def test_network_that_is_fp32_in_places_compiles(half, text):
    weights = {"w": normal(64, 64)} if text is NORMALISATION else {}
    onnx.save(half_precision(parse_model(text, **weights)), half)
    assert_compiles(half)
