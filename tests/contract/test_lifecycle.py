"""Starting, stopping and, on a multi-model server, loading and unloading."""

from __future__ import annotations

import json
import threading

import pytest

from local_cloud.containers.server_client import ServerClient
from tests.contract.conftest import TARGET_MODEL, exit_status, load, start, wait_until_healthy
from tests.contract.requests import json_request
from tests.fixtures.tiny_embedder.archive import MODEL, write_archive

OTHER = "fedcba9876543210/model.tar.gz"
TO_OTHER = {"X-Amzn-SageMaker-Target-Model": OTHER}


def test_multi_model_server_loads_lists_answers_and_unloads(launched, tmp_path):
    client = launched("triton-mme").client
    write_archive(tmp_path / "model")
    assert load(client, tmp_path / "model", name="other", target=OTHER).status == 200
    assert load(client, tmp_path / "model", name="other", target=OTHER).status == 409
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
    for method, path in (
        ("POST", "/models/other/invoke"),
        ("GET", "/models/other"),
        ("DELETE", "/models/other"),
    ):
        gone = client.request(method, path, headers=TO_OTHER)
        assert (gone.status, gone.body) == (404, b"")
    kept = client.request(
        "POST",
        "/models/hash/invoke",
        json_request(["a dog"]),
        {"X-Amzn-SageMaker-Target-Model": TARGET_MODEL},
    )
    assert kept.status == 200


def test_refuses_to_load_a_folder_that_holds_no_model(launched, tmp_path):
    assert (
        load(
            launched("triton-mme").client, tmp_path, name="none", target="none/model.tar.gz"
        ).status
        == 400
    )


def test_python_server_answers_what_it_took_and_ends_with_zero(archive, tmp_path):
    container = start("python-server", archive, tmp_path)
    client = ServerClient(container.connection)
    try:
        wait_until_healthy(container, client)
        answers = []
        asking = threading.Thread(target=lambda: answers.append(_ask(client)))
        asking.start()
        container.control.sendall(b"t")
        asking.join()
        assert exit_status(container) == 0
    finally:
        client.close()
        container.stop(0)
    assert answers[0] in (200, 503, None)
    assert "Traceback" not in container.spec.log.read_text()


def _ask(client: ServerClient) -> int | None:
    """The status of a large request.

    Or None when the server had stopped listening before it came.
    """
    try:
        return client.request(
            "POST", "/invocations", json_request(["the cat sat on the mat"] * 1000)
        ).status
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
    container = start("python-server", archive, tmp_path, **variables)
    try:
        assert exit_status(container) in (2, 4)
    finally:
        container.stop(0)
    lines = container.spec.log.read_text().splitlines()
    assert len(lines) == 1 and sentence in lines[0]


def test_refuses_an_engine_that_cannot_be_loaded(tmp_path):
    archive = tmp_path / "model"
    write_archive(archive, engine_file=f"{MODEL}/1/tokenizer.json")
    container = start("python-server", archive, tmp_path)
    try:
        assert exit_status(container) == 4
    finally:
        container.stop(0)
    assert "cannot be loaded" in container.spec.log.read_text()
    assert "Traceback" not in container.spec.log.read_text()
