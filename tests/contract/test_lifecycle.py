"""Starting, stopping and, on a multi-model server, loading and unloading."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from local_cloud.containers.server_client import ServerClient
from tests.contract.conftest import (
    TARGET_HEADER,
    TARGET_MODEL,
    end_of,
    exit_status,
    load,
    start,
    wait_until_healthy,
)
from tests.contract.requests import json_request
from tests.fixtures.tiny_embedder.archive import MODEL, write_archive

OTHER = "fedcba9876543210/model.tar.gz"
TO_OTHER = {TARGET_HEADER: OTHER}


def test_triton_lists_loads_and_forgets_a_second_model(launched, tmp_path):
    client = launched("triton-mme").client
    write_archive(tmp_path / "model")
    assert load(client, tmp_path / "model", name="other", target=OTHER).status == 200
    assert json.loads(client.request("GET", "/models/other").body) == {
        "modelName": "other",
        "modelUrl": str(tmp_path / "model"),
    }
    # Triton asks for readiness by hash while the model bears its target's name: the list counts
    # models but names none.
    assert json.loads(client.request("GET", "/models").body) == {"models": [{}, {}]}
    answer = client.request("POST", "/models/other/invoke", json_request(["a dog"]), TO_OTHER)
    assert (answer.status, json.loads(answer.body)["model_name"]) == (200, OTHER)
    assert client.request("DELETE", "/models/other", headers=TO_OTHER).status == 200
    for method in ("GET", "DELETE"):
        gone = client.request(method, "/models/other", headers=TO_OTHER)
        assert (gone.status, gone.body) == (404, b"")
    first = {TARGET_HEADER: TARGET_MODEL}
    kept = client.request("POST", "/models/hash/invoke", json_request(["a dog"]), first)
    assert kept.status == 200


def test_python_server_answers_what_it_took_and_ends_with_zero(archive, tmp_path):
    container = start("python-server", archive, tmp_path)
    client = ServerClient(container.connection)
    try:
        wait_until_healthy(container, client)
        with ThreadPoolExecutor(1) as thread:
            answer = thread.submit(_status_of_a_large_request, client)
            container.control.sendall(b"t")
        assert exit_status(container) == 0
    finally:
        client.close()
        container.stop(0)
    assert answer.result() in (200, 503, None)
    assert "Traceback" not in container.spec.log.read_text()


def _status_of_a_large_request(client: ServerClient) -> int | None:
    """None when the server had stopped listening before it came."""
    body = json_request(["the cat sat on the mat"] * 1000)
    try:
        return client.request("POST", "/invocations", body).status
    except OSError:
        return None


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({"ROUNDHOUSE_QUEUE_ROW": "5"}, "did you mean ROUNDHOUSE_QUEUE_ROWS?"),
        ({"ROUNDHOUSE_BIND_ADDRESS": "192.0.2.1"}, "Cannot listen on 192.0.2.1:"),
    ],
)
def test_refuses_to_start_with_a_wrong_setting(archive, tmp_path, variables, sentence):
    status, log = end_of("python-server", archive, tmp_path, **variables)
    (line,) = log.splitlines()
    assert status in (2, 4) and sentence in line


def test_refuses_an_engine_that_cannot_be_loaded(tmp_path):
    archive = tmp_path / "model"
    write_archive(archive, engine_file=f"{MODEL}/1/tokenizer.json")
    status, log = end_of("python-server", archive, tmp_path)
    assert status == 4 and "cannot be loaded" in log and "Traceback" not in log
