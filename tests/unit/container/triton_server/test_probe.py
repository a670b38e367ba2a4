"""Health requests: one row of what the archive's manifest takes, which the server's codec reads."""

from __future__ import annotations

import json
import struct

import pytest

from container.server.codecs import tensors, texts
from container.server.triton.health import PIXEL, health_request
from container.server.triton.kserve_request import checked_request
from container.server.triton.routes import watched_model
from onboarding.manifest import (
    MANIFEST_NAME,
    EnsembleRecord,
    ProcessingRecord,
    ProfileRecord,
    TensorRecord,
)
from onboarding.values import NOT_MEASURED
from tests.fixtures.manifests import embedder_manifest
from tests.fixtures.tiny_embedder.archive import IMAGE_CLASSIFIER
from tests.unit.container.signatures import tensor_signature, text_signature

PROCESSOR = IMAGE_CLASSIFIER.served.image_processor
PROFILE = ProfileRecord(batch=(1, 8, 64), sequence=(4, 16, 128))
LOGITS = TensorRecord(name="scores", datatype="FP32", shape=(-1, 1))


def texts_of(*names):
    return tuple(TensorRecord(name=name, datatype="BYTES", shape=(-1, 1)) for name in names)


def archive(folder, **fields):
    manifest = embedder_manifest("probed", width=4, profile=PROFILE)
    (folder / MANIFEST_NAME).write_bytes(manifest.model_copy(update=fields).to_bytes())
    return folder


def test_request_goes_to_the_model_as_it_was_loaded(tmp_path):
    folder, headers = archive(tmp_path, inputs=texts_of("text")), ((b"a", b"b"),)
    requests = [watched_model(folder).request, watched_model(folder, "a", headers).request]
    assert [request.path for request in requests] == ["/invocations", "/models/a/invoke"]
    assert requests[1].headers == headers


def test_embedder_gets_a_word(tmp_path):
    request = health_request(archive(tmp_path, inputs=texts_of("text")))
    decoded = texts.decode_request(*checked_request(*request), text_signature())
    assert (decoded.rows, decoded.wanted) == (("health",), ((0, True),))


def test_network_of_arrays_gets_zeros_of_the_shortest_sequence(tmp_path):
    inputs = (TensorRecord(name="signal", datatype="FP32", shape=(-1, -1, 3)),)
    request = health_request(archive(tmp_path, tokenizer_file=None, inputs=inputs))
    signature = tensor_signature(inputs, [LOGITS])
    (row,) = tensors.decode_request(*checked_request(*request), signature).rows
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
    body, content_type = checked_request(*request)
    text, size = "<p>ünïcode</p>".encode(), int(content_type.rpartition("=")[2])
    records = json.loads(body[:size])["inputs"]
    assert [(record["name"], record["shape"]) for record in records] == [
        ("html", [1, 1]),
        ("size", [1, 2, 1]),
    ]
    assert body[size:] == struct.pack(f"<I{len(text)}s2e", len(text), text, 1, 2.5)


@pytest.mark.parametrize(
    "fields",
    [
        {"preprocessing": processing(texts_of("text"))},
        {"ensemble": EnsembleRecord(steps={})},
        {"accuracy": NOT_MEASURED},
        {"tokenizer_file": None, "inputs": texts_of("image")},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_no_request_where_the_manifest_does_not_say_what_the_model_takes(fields, tmp_path):
    assert health_request(tmp_path) is None
    assert health_request(archive(tmp_path, **fields)) is None


def test_ensemble_gets_its_example(tmp_path):
    inputs = (*texts_of("text"), TensorRecord(name="x", datatype="FP32", shape=(-1, 2)))
    record = EnsembleRecord(steps={}, example={"text": "a cat", "x": [1.0, 2.0]})
    body, _ = health_request(archive(tmp_path, inputs=inputs, ensemble=record))
    assert body.endswith(struct.pack("<I5s2f", 5, b"a cat", 1, 2))


def test_image_classifier_gets_a_pixel(tmp_path):
    fields = {"tokenizer_file": None, "image_processor": PROCESSOR}
    body, _ = health_request(archive(tmp_path, inputs=texts_of("image"), **fields))
    assert body.endswith(PIXEL)
