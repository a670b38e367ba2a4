"""Health requests: one row of what the archive's manifest takes, which the server's codec reads."""

from __future__ import annotations

import json
import struct

import pytest

from container.server.codecs import tensors, texts
from container.server.triton.kserve_request import checked_request
from container.server.triton.probe import PIXEL, health_request
from container.server.triton.routes import watched_model
from container.server.types import Signature, TensorSignature
from container.server.upstream import UpstreamRequest
from onboarding.manifest import (
    MANIFEST_NAME,
    EnsembleRecord,
    ProcessingRecord,
    ProfileRecord,
    TensorRecord,
)
from tests.fixtures.manifests import embedder_manifest

PROFILE = ProfileRecord(batch=(1, 8, 64), sequence=(4, 16, 128))
LOGITS = TensorRecord(name="scores", datatype="FP32", shape=(-1, 1))


def texts_of(*names):
    return tuple(TensorRecord(name=name, datatype="BYTES", shape=(-1, 1)) for name in names)


def archive(folder, **fields):
    manifest = embedder_manifest("probed", width=4, profile=PROFILE)
    (folder / MANIFEST_NAME).write_bytes(manifest.model_copy(update=fields).to_bytes())
    return folder


def test_request_goes_to_the_model_as_it_was_loaded(tmp_path):
    folder, load = archive(tmp_path, inputs=texts_of("text")), UpstreamRequest("POST", "/models")
    paths = [watched_model(folder, "a", how).request.path for how in (None, load)]
    assert paths == ["/invocations", "/models/a/invoke"]


def test_embedder_gets_a_word(tmp_path):
    request = health_request(archive(tmp_path, inputs=texts_of("text")))
    signature = Signature(model="probed", input_name="text", output_name="embedding")
    decoded = texts.decode_request(*checked_request(*request[:2]), signature)
    assert (decoded.rows, decoded.wanted) == (("health",), ((0, True),))


def test_network_of_arrays_gets_zeros_of_the_shortest_sequence(tmp_path):
    inputs = (TensorRecord(name="signal", datatype="FP32", shape=(-1, -1, 3)),)
    request = health_request(archive(tmp_path, tokenizer_file=None, inputs=inputs))
    signature = TensorSignature(model="probed", inputs=inputs, outputs=(LOGITS,))
    (row,) = tensors.decode_request(*checked_request(*request[:2]), signature).rows
    assert row[0].shape == (4, 3) and not row[0].any()


def processing(inputs, **fields):
    return ProcessingRecord(
        file="code.py", inputs=inputs, outputs=texts_of("text"), timeout_ms=1000, **fields
    )


def test_preprocessing_gets_its_example(tmp_path):
    inputs = (*texts_of("html"), TensorRecord(name="size", datatype="FP16", shape=(-1, 2, -1)))
    row = {"html": "<p>ünïcode</p>", "size": [[1], [2.5]]}
    before = processing(inputs, example=row)
    request = health_request(archive(tmp_path, inputs=inputs, preprocessing=before))
    body, content_type = checked_request(*request[:2])
    text, size = "<p>ünïcode</p>".encode(), int(content_type.rpartition("=")[2])
    records = json.loads(body[:size])["inputs"]
    assert [(record["name"], record["shape"]) for record in records] == [
        ("html", [1, 1]),
        ("size", [1, 2, 1]),
    ]
    assert body[size:] == struct.pack(f"<I{len(text)}s2e", len(text), text, 1, 2.5)
    assert not request.is_guess


def test_no_request_for_a_preprocessing_of_unknown_inputs(tmp_path):
    inputs = texts_of("html")
    assert (
        health_request(archive(tmp_path, inputs=inputs, preprocessing=processing(inputs))) is None
    )


@pytest.mark.parametrize("write", [False, True])
def test_no_request_without_a_manifest_or_for_arrays_of_bytes(tmp_path, write):
    if write:
        archive(tmp_path, tokenizer_file=None, inputs=texts_of("image"))
    assert health_request(tmp_path) is None


def test_ensemble_gets_its_example_or_a_value_for_each_input(tmp_path):
    inputs = (*texts_of("text", "picture"), TensorRecord(name="x", datatype="FP32", shape=(-1, 2)))
    record = EnsembleRecord(steps={}, images=("picture",))
    request = health_request(archive(tmp_path, inputs=inputs, ensemble=record))
    header = int(request.content_type.rpartition("=")[2])
    sizes = [
        item["parameters"]["binary_data_size"]
        for item in json.loads(request.body[:header])["inputs"]
    ]
    assert sizes == [4 + len("health"), 4 + len(PIXEL), 8] and request.is_guess
    row = {"text": "a cat", "picture": "none", "x": [1.0, 2.0]}
    given = record.model_copy(update={"example": row})
    request = health_request(archive(tmp_path, inputs=inputs, ensemble=given))
    assert request.body.endswith(struct.pack("<2f", 1, 2)) and not request.is_guess
