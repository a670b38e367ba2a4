"""What may lie in an archive.

The forms of both modes, in the folders where SageMaker unpacks them.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from local_cloud.containers.container import ContainerSpec, namespaces, start_container
from local_cloud.containers.server_client import ServerClient
from tests.contract.conftest import Served, end_of, environment, load, wait_until_healthy
from tests.contract.conftest import command as server_command
from tests.contract.requests import json_request
from tests.contract.test_ensemble import write_ensemble
from tests.contract.test_pressure import write_slow
from tests.fixtures.tiny_embedder.archive import EMBEDDER, write_archive

NUMBER = json.dumps(
    {"inputs": [{"name": "number", "shape": [1, 1], "datatype": "FP32", "data": [1.0]}]}
).encode()
FORMS = {"root": NUMBER, "one": json_request(["a dog"]), "ensemble": json_request(["a dog"])}
AS_SAGEMAKER = (
    'mount -t tmpfs none /opt && mkdir -p /opt/ml && cp -r "$0" /opt/ml/models && exec "$@"'
)


def write_forms(models: Path) -> None:
    """An archive of each form.

    A configuration at the root, one model's folder, an ensemble with its members.
    """
    (write_slow(models / "root") / "gate").touch()
    (models / "root" / "slow").rename(models / "root" / "model")
    write_archive(models / "one" / "model")
    write_ensemble(models / "ensemble" / "model")


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Served]:
    """A multi-model Triton with archives at /opt/ml/models/NAME/model, as on SageMaker."""
    folder = tmp_path_factory.mktemp("forms")
    write_forms(folder / "models")
    (folder / "empty").mkdir()
    shell = ("/bin/sh", "-c", AS_SAGEMAKER, str(folder / "models"))
    spec = ContainerSpec(
        command=(*shell, *server_command("triton-mme", folder)),
        environment=environment("triton-mme", folder / "empty", HOME=str(folder)),
        folder=folder,
        log=folder / "server.log",
    )
    container = start_container(spec)
    client = ServerClient(container.connection)
    try:
        wait_until_healthy(container, client)
        yield Served(kind="triton-mme", container=container, client=client)
    finally:
        client.close()
        container.stop(5)


@pytest.mark.skipif(not namespaces(own_network=True), reason="this kernel allows no namespaces")
@pytest.mark.parametrize("form", FORMS)
def test_form_is_loaded_and_answers_in_multi_model_mode(form, server):
    target = f"{form}/model.tar.gz"
    answer = load(server.client, Path("/opt/ml/models") / form / "model", name=form, target=target)
    assert answer.status == 200, answer.body
    headers = {"Content-Type": "application/json", "X-Amzn-SageMaker-Target-Model": target}
    answer = server.client.request("POST", f"/models/{form}/invoke", FORMS[form], headers)
    assert (answer.status, json.loads(answer.body)["model_name"]) == (200, target)
    assert server.client.request("DELETE", f"/models/{form}", headers=headers).status == 200


def test_refuses_a_configuration_at_the_root_in_single_model_mode(tmp_path):
    write_archive(tmp_path / "model")
    shutil.copy(tmp_path / "model" / EMBEDDER.model / "config.pbtxt", tmp_path / "model")
    status, log = end_of("triton-sme", tmp_path / "model", tmp_path)
    assert status != 0 and "a single-model archive keeps it in <model>/" in log


def test_refuses_to_choose_among_the_folders_of_an_ensemble(tmp_path):
    write_ensemble(tmp_path / "model")
    variables = {"SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": ""}
    status, log = end_of("triton-sme", tmp_path / "model", tmp_path, **variables)
    assert status != 0
    assert "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME names the one to load" in log
