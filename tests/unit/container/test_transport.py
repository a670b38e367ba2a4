"""The ASGI application with the tiny engine behind it, and no socket in between."""

from __future__ import annotations

import asyncio
import gzip
import json
from concurrent.futures import Executor, Future
from pathlib import Path

import numpy as np
import pytest

from container.server.batcher import Limits
from container.server.data_plane import DataPlane
from container.server.runtime import OnnxEngine, TextEncoder
from container.server.transport import application
from container.server.types import Signature
from tests.fixtures.tiny_embedder import archive as tiny

LIMITS = Limits(max_rows=4, max_tokens=128, queue_rows=8)
BODY = json.dumps({"inputs": ["the cat sat", "a dog"]}).encode()
FIXTURE = Path(tiny.__file__).parent


class Inline(Executor):
    """An executor that runs a task where it is submitted."""

    def submit(self, function, /, *arguments, **keywords):
        future: Future = Future()
        future.set_result(function(*arguments, **keywords))
        return future


class Never(Executor):
    """An executor whose tasks never run: an engine that is busy for good."""

    def submit(self, function, /, *arguments, **keywords):
        return Future()


def plane(thread: Executor | None = None, *, engine=None, opened: bool = True) -> DataPlane:
    made = DataPlane(
        signature=Signature(model="tiny", input_name="text", output_name="embedding"),
        encoder=TextEncoder(FIXTURE / "tokenizer.json", max_tokens=32),
        limits=LIMITS,
        max_request_rows=6,
        thread=Inline() if thread is None else thread,
    )
    if opened:
        made.open(OnnxEngine(FIXTURE / "model.onnx", threads=1) if engine is None else engine)
    return made


async def exchange(app, path, *, method="POST", body=(BODY,), headers=(), leaves=False):
    """Status, headers and body of one request; `None` when the client left without an answer."""
    chunks = [{"type": "http.request", "body": chunk, "more_body": index + 1 < len(body)} for index, chunk in enumerate(body)]
    sent: list[dict] = []
    gone = asyncio.Event()
    if leaves:
        gone.set()

    async def receive():
        if chunks:
            return chunks.pop(0)
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    await app({"type": "http", "method": method, "path": path, "headers": list(headers)}, receive, send)
    if not sent:
        return None
    return sent[0]["status"], dict(sent[0]["headers"]), sent[1]["body"]


def ask(made: DataPlane, path="/invocations", *, max_body_bytes=4096, **arguments):
    return asyncio.run(exchange(application(made, max_body_bytes=max_body_bytes), path, **arguments))


def sentence(answer) -> str:
    document = json.loads(answer[2])
    assert list(document) == ["error"]
    return document["error"]


@pytest.mark.parametrize("path", ["/invocations", "/v2/models/tiny/infer", "/v2/models/tiny/versions/1/infer"])
def test_texts_are_answered_with_unit_vectors(path):
    status, headers, body = ask(plane(), path)
    rows = np.array(json.loads(body)["outputs"])
    assert (status, headers[b"content-type"]) == (200, b"application/json")
    assert rows.shape == (2, tiny.SIZE)
    assert np.allclose(np.linalg.norm(rows, axis=1), 1)


def test_batch_answers_equal_single_answers():
    texts = ["the cat sat on the mat", "a dog", "train", "the fast red train ran over the green track", "bird", "of"]
    made = plane()
    _, _, together = ask(made, body=(json.dumps({"inputs": texts}).encode(),))
    alone = [json.loads(ask(made, body=(json.dumps({"inputs": text}).encode(),))[2])["outputs"][0] for text in texts]
    assert np.allclose(json.loads(together)["outputs"], alone, atol=1e-6)


def test_body_may_come_in_pieces_and_packed():
    packed = gzip.compress(BODY)
    whole = ask(plane())
    assert ask(plane(), body=(BODY[:5], b"", BODY[5:])) == whole
    assert ask(plane(), body=(packed[:9], packed[9:]), headers=[(b"Content-Encoding", b"gzip")]) == whole


@pytest.mark.parametrize("path", ["/ping", "/v2/health/ready", "/v2/models/tiny/ready"])
def test_ping_is_healthy_only_while_requests_are_answered(path):
    made = plane(opened=False)
    assert ask(made, path, method="GET")[0] == 503
    made.open(OnnxEngine(FIXTURE / "model.onnx", threads=1))
    assert ask(made, path, method="GET")[0] == 200
    made.drain_when(lambda: True)
    assert ask(made, path, method="GET")[0] == 503


def test_refuses_requests_while_loading_and_draining():
    made = plane(opened=False)
    answer = ask(made)
    assert (answer[0], answer[1][b"retry-after"]) == (503, b"1")
    assert "still loading" in sentence(answer)
    made.drain_when(lambda: True)
    assert "draining" in sentence(ask(made))


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        ({"path": "/nowhere"}, 404, "There is no '/nowhere' here"),
        ({"path": "/v2/models/other/infer"}, 404, "There is no"),
        ({"method": "GET"}, 405, "/invocations takes POST, not GET"),
        ({"path": "/ping"}, 405, "/ping takes GET, not POST"),
        ({"body": (b"{",)}, 400, "not JSON"),
        ({"body": (b"x" * 3000, b"x" * 3000)}, 413, "more than 4096 bytes"),
        ({"body": (json.dumps({"inputs": ["a"] * 7}).encode(),)}, 413, "holds 7 texts; at most 6"),
        ({"body": (gzip.compress(b" " * 9000),), "headers": [(b"content-encoding", b"gzip")]}, 413, "once unpacked"),
        ({"headers": [(b"content-encoding", b"gzip")]}, 400, "The body is not gzip"),
        ({"body": (gzip.compress(BODY)[:-9],), "headers": [(b"content-encoding", b"gzip")]}, 400, "ends too early"),
        ({"headers": [(b"content-encoding", b"br")]}, 415, "Content-Encoding is 'br'"),
    ],
)
def test_refuses_what_cannot_be_answered(arguments, status, words):
    answer = ask(plane(), **arguments)
    assert answer[0] == status
    assert words in sentence(answer)


def test_refuses_when_the_queue_is_full():
    async def scenario():
        app = application(plane(Never()), max_body_bytes=4096)
        body = (json.dumps({"inputs": ["a"] * 4}).encode(),)
        running = [asyncio.ensure_future(exchange(app, "/invocations", body=body)) for _ in range(3)]
        await asyncio.sleep(0)
        full = await exchange(app, "/invocations", body=body)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        return full

    answer = asyncio.run(scenario())
    assert (answer[0], answer[1][b"retry-after"]) == (503, b"1")
    assert "8 rows wait already" in sentence(answer)


def test_client_that_leaves_gets_nothing_and_costs_nothing():
    async def scenario():
        made = plane(Never())
        app = application(made, max_body_bytes=4096)
        answer = await exchange(app, "/invocations", leaves=True)
        await asyncio.sleep(0)
        return answer

    assert asyncio.run(scenario()) is None


def test_refuses_with_503_and_bad_health_when_the_engine_always_fails():
    class Broken:
        def run(self, rows):
            raise RuntimeError("no")

    made = plane(engine=Broken())
    assert ask(made)[0] == 503
    assert ask(made, "/ping", method="GET")[0] == 503
