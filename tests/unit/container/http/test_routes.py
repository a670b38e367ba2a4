"""What a server records and answers of each request, without a connection."""

from __future__ import annotations

import asyncio
import json

import numpy as np
import pytest

from container.server.app import model_application
from container.server.codecs.envelope import BINARY_TYPE
from container.server.http.messages import Request
from container.server.settings import Settings
from container.server.types import DeadlinePassed, Encoded, TooLarge
from tests.unit.container.signatures import record, tensor_signature

X = record("x", "FP32", 2)
SIGNATURE = tensor_signature([X], [X])
TENSOR = {"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}


class Plane:
    """A model that answers tensors with themselves, never, or by a fault."""

    def __init__(self, *, fault=None, never=False):
        self.signature, self.ready = SIGNATURE, fault is None
        self._fault, self._never = fault, never
        self.deadlines: list[float] = []
        self.answers: asyncio.Future | None = None

    def encode_short(self, rows):
        return Encoded(rows, 0)

    def submit(self, encoded, *, deadline=None, alone=False):
        loop = asyncio.get_running_loop()
        self.deadlines.append(deadline - loop.time())
        self.answers = loop.create_future()
        if self._fault is not None:
            raise self._fault
        if not self._never:
            self.answers.set_result((np.stack([x for (x,) in encoded.rows]),))
        return self.answers


class Observer(list):
    """Records the requests that are over, and faults of ours."""

    def __init__(self):
        super().__init__()
        self.faults = []

    def report(self, event, fault=None, **facts):
        """The failure log's."""
        self.faults.append((event, fault, facts["status"]))

    def record_request(self, path_kind, status, seconds, stages):
        assert 60 > seconds >= sum(stages.values()) >= 0
        self.append((path_kind, status, list(stages)))


def application(plane=None, observer=None):
    observer = Observer() if observer is None else observer
    return model_application(plane or Plane(), Settings(), observer, observer)


def request(path="/invocations", *, method="POST", headers=None, body=None, **document):
    body = json.dumps({"inputs": [TENSOR], **document}).encode() if body is None else body
    return Request(method, path, headers or {}, body)


def ask(*requests, **options):
    """The last of the answers."""
    answer = application(**options)
    return [asyncio.run(answer(one)) for one in requests][-1]


def test_header_length_header_makes_a_body_binary():
    tail = np.array([1, 2], "<f4").tobytes()
    tensor = TENSOR | {"parameters": {"binary_data_size": len(tail)}}
    header = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    headers = {
        b"inference-header-content-length": b"%d" % len(header),
        b"content-type": b"application/octet-stream",
    }
    response = ask(request(headers=headers, body=header + tail))
    assert response.content_type.startswith(BINARY_TYPE) and tail in response.body


@pytest.mark.parametrize(
    ("parameters", "seconds"),
    [({}, 60), ({"timeout": 0}, 60), ({"timeout": 2_000_000}, 2), ({"timeout": 10**12}, 60)],
)
def test_deadline_is_the_sooner_of_the_clients_and_the_servers(parameters, seconds):
    plane = Plane()
    assert ask(request(parameters=parameters), plane=plane).status == 200
    assert plane.deadlines == [pytest.approx(seconds, abs=1)]


def test_observer_records_every_request():
    observer = Observer()
    ask(*map(request, ("/invocations", "/nowhere", "/ping")), observer=observer)
    assert observer == [
        ("infer", 200, ["decode", "tokenize", "wait", "encode"]),
        ("elsewhere", 404, []),
        ("health", 405, []),
    ]
    assert observer.faults == []


def test_unanswered_requests_are_logged_but_not_those_for_health():
    plane, observer = Plane(fault=DeadlinePassed("late")), Observer()
    ask(request(), request("/ping", method="GET"), plane=plane, observer=observer)
    assert [status for _, status, _ in observer] == [503, 503]
    assert observer.faults == [("request_unanswered", None, 503)]


def test_client_that_leaves_cancels_its_rows_and_is_counted():
    async def scenario():
        plane, observer = Plane(never=True), Observer()
        task = asyncio.ensure_future(application(plane, observer)(request()))
        while plane.answers is None:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert plane.answers.cancelled()
        assert observer == [("infer", 499, ["decode", "tokenize"])]

    asyncio.run(scenario())


ELSEWHERE = "There is no '/nowhere' here; GET /ping and POST /invocations are, with model 'tiny'."


@pytest.mark.parametrize(
    ("incoming", "fault", "status", "words", "header"),
    [
        (request("/nowhere"), None, 404, ELSEWHERE, None),
        (request("/ping", method="HEAD"), None, 405, "/ping takes GET, not HEAD.", b"allow"),
        (request(), TooLarge("too many"), 413, "too many", None),
        (request(), DeadlinePassed("too late"), 503, "too late", b"retry-after"),
    ],
)
def test_refuses_with_one_sentence(incoming, fault, status, words, header):
    response = ask(incoming, plane=Plane(fault=fault))
    assert (response.status, json.loads(response.body)) == (status, {"error": words})
    assert [name for name, _ in response.headers] == ([] if header is None else [header])


class Panic(BaseException):
    """What a library of Rust raises when it gives up: no Exception."""


@pytest.mark.parametrize("fault", [KeyError("secret"), Panic("secret")])
def test_faults_of_ours_are_answered_500_and_reported_with_their_traceback(fault):
    observer = Observer()
    response = ask(request(), plane=Plane(fault=fault), observer=observer)
    assert response.status == 500 and b"secret" not in response.body
    assert observer.faults == [("request_failed", fault, 500)] and fault.__traceback__ is not None
