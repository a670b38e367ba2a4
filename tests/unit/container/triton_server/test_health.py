"""Which models can answer: proof by answers, health requests, and Python processes that end.

A health request is one row of what the archive's manifest takes, which the server's codec reads.
"""

from __future__ import annotations

import asyncio
import json
import struct
from pathlib import Path

import pytest

from container.server.codecs import tensors, texts
from container.server.http.messages import Response
from container.server.triton.health import (
    PIXEL,
    PROOF_SECONDS,
    Health,
    ModelHealth,
    Stub,
    health_request,
    stub_processes,
)
from container.server.triton.kserve_request import checked_request
from container.server.triton.routes import watched_model
from container.server.types import Unavailable
from container.server.upstream import UpstreamGone, UpstreamRequest
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

ARCHIVE = Path("/opt/ml/model")
FILE = "/opt/ml/model/minilm/1/model.py"
DEAD = Stub(7, "", False)
"""What ended by itself; Triton has not waited for it."""


class World:
    """A clock, a Triton that answers as told, and the stubs that run."""

    def __init__(self, request: bool = True) -> None:
        self.now, self.requests = 100.0, 0
        self.status: int | Exception = 200
        self.stubs = (Stub(7, FILE, True),)
        self.health = Health(self._ask, lambda: self.stubs, lambda: self.now)
        probe = UpstreamRequest("POST", "/invocations") if request else None
        self.model = ModelHealth(name="", archive=ARCHIVE, request=probe)
        self.health.add(self.model)

    async def _ask(self, request: UpstreamRequest) -> Response:
        self.requests += 1
        if isinstance(self.status, Exception):
            raise self.status
        return Response(self.status, b"", "application/json")

    def inspect(self, times: int = 1) -> ModelHealth:
        for _ in range(times):
            asyncio.run(self.health.inspect())
        return self.model


def test_model_is_ready_once_it_has_answered_its_health_request():
    world = World()
    assert not world.model.is_ready
    assert world.inspect().is_ready and world.requests == 1


def test_model_that_answers_others_gets_no_health_request():
    world = World()
    world.inspect()
    for _ in range(30):
        world.now += 1
        world.health.observe("", 200)
        world.inspect()
    assert world.requests == 1


@pytest.mark.parametrize("status", [500, 400, UpstreamGone("gone")], ids=str)
def test_model_that_fails_twice_cannot_answer(status):
    world = World()
    world.inspect()
    world.now, world.status = world.now + PROOF_SECONDS, status
    assert not world.inspect().broken
    assert "its health request" in world.inspect().broken
    with pytest.raises(Unavailable, match="cannot answer"):
        world.health.refuse("")


@pytest.mark.parametrize("status", [503, 507, 429])
def test_busy_server_is_no_sign_of_a_broken_model(status):
    world = World()
    world.inspect()
    world.now, world.status = world.now + PROOF_SECONDS, status
    assert not world.inspect(5).broken


def test_model_that_refuses_its_health_request_depends_on_its_processes():
    world = World()
    world.status = 400
    assert world.inspect(3).is_ready and world.requests == 1
    world.stubs = (DEAD,)
    assert "Python process 7 ended" in world.inspect(2).broken


def test_clients_answer_does_not_turn_a_refused_health_request_into_a_failure():
    world = World()
    world.health.observe("", 200)
    world.now, world.status = world.now + PROOF_SECONDS, 400
    assert not world.inspect(5).broken and world.requests == 1


def test_model_whose_python_process_ended_cannot_answer():
    world = World(request=False)
    assert world.inspect().is_ready
    world.stubs = (DEAD,)
    assert not world.inspect().broken
    assert "Python process 7 ended" in world.inspect().broken


def test_of_several_models_only_the_one_of_the_process_cannot_answer():
    world = World(request=False)
    other = ModelHealth(name="other", archive=Path("/opt/ml/other"), request=None)
    world.health.add(other)
    world.stubs = (DEAD,)
    assert world.inspect(2).broken and not other.broken


@pytest.fixture
def proc(tmp_path):
    """Triton, process 5, with a stub, a dead stub, and another child."""
    (tmp_path / "5" / "task" / "6").mkdir(parents=True)
    (tmp_path / "5" / "task" / "6" / "children").write_text("10 11 12 13 ")
    rows = (
        ("10", "triton_python_b", "S", b"stub\0/m/a/1/model.py\0x\0"),
        ("11", "triton_python_b", "Z", b""),
        ("12", "python3", "S", b"python3\0"),
    )
    for pid, name, state, command in rows:
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "stat").write_text(f"{pid} ({name}) {state} 5 5 5")
        (tmp_path / pid / "cmdline").write_bytes(command)
    return tmp_path


def test_stubs_are_those_of_the_process_dead_ones_included(proc):
    assert stub_processes(5, proc) == (Stub(10, "/m/a/1/model.py", True), Stub(11, "", False))


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
