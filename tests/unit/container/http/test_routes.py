"""Requests to answers, without a connection: paths, faults, deadlines, stages."""

from __future__ import annotations

import asyncio
import json

import numpy as np
import pytest

from container.server.app import model_application
from container.server.codecs.envelope import BINARY_TYPE
from container.server.http.messages import Request
from container.server.settings import Settings
from container.server.telemetry.metrics import ServerMetrics
from container.server.types import DeadlinePassed, Encoded, Signature, TensorSignature, TooLarge
from onboarding.manifest import TensorRecord

TEXTS = Signature(model="tiny", input_name="text", output_name="embedding")
X, Y = (TensorRecord(name=name, datatype="FP32", shape=(-1, 2)) for name in "xy")
Z = TensorRecord(name="z", datatype="INT64", shape=(-1, 1))
TENSORS = TensorSignature(model="tiny", inputs=(X,), outputs=(Y, Z))
BODY = json.dumps({"inputs": ["a cat", "a dog"]}).encode()
ANSWER = {"outputs": [[5, 5], [5, 5]]}


class Plane:
    """A model that answers each text with its length, twice, and tensors with themselves."""

    def __init__(self, signature=TEXTS, *, ready=True, fault=None, never=False, long=False):
        self.signature, self.ready = signature, ready
        self._fault, self._never, self._long = fault, never, long
        self.deadlines: list[float] = []
        self.answers: asyncio.Future | None = None

    def encode_short(self, rows):
        return None if self._long else Encoded(rows, 0)

    def submit_encoded(self, encoded, *, deadline=None, alone=False):
        return self._submit(encoded.rows, deadline)

    async def submit(self, rows, *, deadline=None):
        assert self._long
        return self._submit(rows, deadline)

    def _submit(self, rows, deadline):
        self.deadlines.append(deadline - asyncio.get_running_loop().time())
        self.answers = asyncio.get_running_loop().create_future()
        if self._fault is not None:
            raise self._fault
        if not self._never:
            self.answers.set_result(self._arrays(rows))
        return self.answers

    def _arrays(self, rows):
        if isinstance(self.signature, TensorSignature):
            return np.stack([x for (x,) in rows]), np.arange(len(rows), dtype=np.int64)[:, None]
        return (np.array([[len(text)] * 2 for text in rows], np.float32),)


class Observer(list):
    """Records the requests that are over, and faults of ours."""

    def __init__(self):
        super().__init__()
        self.metrics, self.faults = ServerMetrics(), []

    def report(self, event, fault=None, **facts):
        """The failure log's."""
        self.faults.append((event, fault, facts["status"]))

    def request_over(self, path_kind, status, seconds, stages):
        assert 60 > seconds >= sum(stages.values()) >= 0
        self.append((path_kind, status, list(stages)))


def application(plane, observer=None):
    observer = Observer() if observer is None else observer
    return model_application(plane, Settings(), observer, observer)


def ask(path="/invocations", body=BODY, *, method="POST", plane=None, headers=None, observer=None):
    answer = application(plane or Plane(), observer)
    return asyncio.run(answer(Request(method, path, headers or {}, body)))


def get(path, **options):
    return ask(path, method="GET", **options)


def sentence(response):
    document = json.loads(response.body)
    assert list(document) == ["error"]
    return document["error"]


def test_texts_are_answered():
    response = ask(headers={b"content-encoding": b"identity"})
    assert (response.status, response.content_type) == (200, "application/json")
    assert json.loads(response.body) == ANSWER


def test_texts_too_long_to_encode_at_once_are_answered_too():
    assert json.loads(ask(plane=Plane(long=True)).body) == ANSWER


def test_tensors_are_answered_with_all_outputs():
    tensor = {"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}
    response = ask(body=json.dumps({"inputs": [tensor]}).encode(), plane=Plane(TENSORS))
    outputs = json.loads(response.body)["outputs"]
    assert {output["name"]: output["data"] for output in outputs} == {"y": [1, 2], "z": [0]}


def test_header_length_header_makes_a_body_binary():
    tail = np.array([1, 2], "<f4").tobytes()
    size = {"binary_data_size": len(tail)}
    tensor = {"name": "x", "shape": [1, 2], "datatype": "FP32", "parameters": size}
    header = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    headers = {
        b"inference-header-content-length": b"%d" % len(header),
        b"content-type": b"application/octet-stream",
    }
    response = ask(body=header + tail, plane=Plane(TENSORS), headers=headers)
    assert response.content_type.startswith(BINARY_TYPE) and tail in response.body


def test_health_is_good_only_while_requests_are_answered():
    assert get("/ping") == (200, b"", "application/json", ())
    response = get("/ping", plane=Plane(ready=False))
    assert (response.status, response.headers) == (503, ((b"retry-after", b"1"),))


def test_metrics_are_text():
    content_type = "text/plain; version=0.0.4; charset=utf-8"
    answer = get("/metrics")
    assert (answer.status, answer.content_type) == (200, content_type)
    assert b"\nroundhouse_connections 0.0\n" in answer.body


@pytest.mark.parametrize(
    ("timeout", "seconds"), [(None, 60), (0, 60), (2_000_000, 2), (10**12, 60)]
)
def test_deadline_is_the_sooner_of_the_clients_and_the_servers(timeout, seconds):
    plane = Plane()
    document = {"inputs": ["a"]} | ({} if timeout is None else {"parameters": {"timeout": timeout}})
    assert ask(body=json.dumps(document).encode(), plane=plane).status == 200
    assert plane.deadlines == [pytest.approx(seconds, abs=1)]


def test_observer_records_every_request():
    observer = Observer()
    ask(observer=observer)
    ask(body=b"{", observer=observer)
    ask("/nowhere", observer=observer)
    ask("/ping", observer=observer)
    assert observer == [
        ("infer", 200, ["decode", "tokenize", "wait", "encode"]),
        ("infer", 400, []),
        ("elsewhere", 404, []),
        ("health", 405, []),
    ]
    assert observer.faults == []


def test_unanswered_requests_are_logged_but_not_those_for_health():
    observer = Observer()
    ask(plane=Plane(fault=DeadlinePassed("late")), observer=observer)
    get("/ping", plane=Plane(ready=False), observer=observer)
    assert observer.faults == [("request_unanswered", None, 503)]


def test_client_that_leaves_cancels_its_rows_and_is_counted():
    async def scenario():
        plane, observer = Plane(never=True), Observer()
        request = Request("POST", "/invocations", {}, BODY)
        task = asyncio.ensure_future(application(plane, observer)(request))
        while plane.answers is None:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert plane.answers.cancelled()
        assert observer == [("infer", 499, ["decode", "tokenize"])]

    asyncio.run(scenario())


ELSEWHERE = "There is no '/nowhere' here; GET /ping and POST /invocations are, with model 'tiny'."


def timeout_body(timeout):
    return b'{"inputs": ["a"], "parameters": {"timeout": %b}}' % timeout


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        ({"path": "/nowhere"}, 404, ELSEWHERE),
        ({"path": "/models"}, 404, "There is no '/models'"),
        ({"method": "GET"}, 405, "/invocations takes POST, not GET"),
        ({"method": "HEAD", "path": "/ping"}, 405, "/ping takes GET, not HEAD"),
        ({"body": b"{"}, 400, "not JSON"),
        ({"headers": {b"content-type": b"text/csv"}}, 415, "Content-Type is 'text/csv'"),
        ({"headers": {b"content-encoding": b"gzip"}}, 415, "uncompressed only"),
        ({"body": timeout_body(b"-1")}, 400, "whole number of microseconds"),
        ({"body": timeout_body(b"true")}, 400, "whole number of microseconds"),
        ({"plane": Plane(fault=TooLarge("too many"))}, 413, "too many"),
        ({"plane": Plane(fault=DeadlinePassed("too late"))}, 503, "too late"),
    ],
)
def test_refuses_with_one_sentence(arguments, status, words):
    response = ask(**arguments)
    assert response.status == status and words in sentence(response)
    headers = dict(response.headers)
    assert (b"retry-after" in headers) == (status == 503)
    assert (b"allow" in headers) == (status == 405)


class Panic(BaseException):
    """What a library of Rust raises when it gives up: no Exception."""


@pytest.mark.parametrize("fault", [KeyError("secret"), Panic("secret")])
def test_faults_of_ours_are_answered_500_and_reported_with_their_traceback(fault):
    observer = Observer()
    response = ask(plane=Plane(fault=fault), observer=observer)
    assert response.status == 500 and "secret" not in sentence(response)
    assert observer.faults == [("request_failed", fault, 500)] and fault.__traceback__ is not None
