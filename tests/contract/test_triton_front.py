"""Real Triton behind our server: bad neighbours, Python processes that die, Triton itself too."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor

from tests.contract.conftest import exit_status, serving
from tests.contract.requests import json_request, lying_request
from tests.contract.server_process import descendants

MODEL_BROKEN = 6
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


def test_server_of_several_ends_when_a_models_python_process_was_killed(archive, tmp_path):
    with serving("triton-mme", archive, tmp_path) as served:
        assert served.ask(json_request(["a dog"])).status == 200
        (stub,) = descendants(served.container.process.pid, STUB)
        os.kill(stub, signal.SIGKILL)
        assert exit_status(served.container) == MODEL_BROKEN
        assert "its Python process" in served.container.spec.log.read_text()
