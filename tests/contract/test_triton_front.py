"""Real Triton behind our server: bad neighbours, Python processes that die, Triton itself too."""

from __future__ import annotations

import http.client
import os
import signal
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

import pytest

from tests.contract.conftest import SECONDS, Served, exit_status, rows, serving
from tests.contract.requests import json_request, lying_request
from tests.contract.server_process import descendants
from tests.fixtures.hostile.clients import Tally
from tests.fixtures.hostile.requests import TEXTS, deep_requests, hostile_requests, lying_requests

MODEL_BROKEN, SEED, HOSTILE = 6, 4, 400
STUB = "triton_python_backend_stub"
"""The python backend's program, as its processes are called."""


def test_liar_fails_none_of_those_that_ask_with_it(launched):
    served = launched("triton-sme")
    body, content_type = lying_request()
    right = served.ask(json_request(["a dog"])).body
    with ThreadPoolExecutor(16) as clients:
        liars = [clients.submit(served.ask, body, content_type) for _ in range(100)]
        innocents = [clients.submit(served.ask, json_request(["a dog"])) for _ in range(200)]
        assert {liar.result().status for liar in liars} == {400}
        assert [one.result().status for one in innocents] == [200] * 200
        assert {len(one.result().body) for one in innocents} == {len(right)}


def exchanges(served: Served, requests: Iterable[tuple[str, bytes]], tally: Tally) -> None:
    """Send whole requests over connections that stay as long as the server keeps them."""
    connection = None
    for method, request in requests:
        connection = served.container.connection(SECONDS) if connection is None else connection
        connection.sendall(request)
        response = http.client.HTTPResponse(connection, method=method)
        response.begin()
        tally.take(request, response.status, response.read(), is_head=method == "HEAD")
        if response.will_close:
            connection.close()
            connection = None
    if connection is not None:
        connection.close()


@pytest.mark.parametrize("kind", ["triton-sme", "triton-mme"])
def test_hostile_requests_get_one_answer_each_and_fail_nobody_else(kind, launched):
    served, tally = launched(kind), Tally()
    requests = chain(
        hostile_requests(SEED, HOSTILE, TEXTS), lying_requests(SEED, 50), deep_requests(3)
    )
    header = "".join(f"{name}: {value}\r\n" for name, value in served.headers.items()).encode()
    aimed = (
        (
            method,
            request.replace(b"/invocations", served.infer_path.encode()).replace(
                b"Host: x\r\n", b"Host: x\r\n" + header
            ),
        )
        for method, request in requests
    )
    right = rows(served.ask(json_request(["a dog"])))
    with ThreadPoolExecutor(1) as others:
        work = others.submit(exchanges, served, aimed, tally)
        answers = [rows(served.ask(json_request(["a dog"])))]
        while not work.done():
            answers.append(rows(served.ask(json_request(["a dog"]))))
        work.result()
    assert tally.wrong[:5] == [] and {200, 400, 404, 405, 415} <= set(tally.statuses)
    assert all(answer == pytest.approx(right, abs=1e-5) for answer in answers)
    assert served.client.request("GET", "/ping").status == 200


def test_server_of_several_ends_when_a_models_python_process_was_killed(archive, tmp_path):
    with serving("triton-mme", archive, tmp_path) as served:
        assert served.ask(json_request(["a dog"])).status == 200
        (stub,) = descendants(served.container.process.pid, STUB)
        os.kill(stub, signal.SIGKILL)
        assert exit_status(served.container) == MODEL_BROKEN
        assert "its Python process" in served.container.spec.log.read_text()
