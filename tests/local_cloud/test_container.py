"""Local containers on a kernel that allows no namespaces; everything else has them."""

import os
import sys

import pytest

from local_cloud.containers.container import ContainerSpec, NotListening, start_container
from local_cloud.containers.server_client import ServerClient
from tests.local_cloud.account import MARK, ROOT, until, wait_until_gone

pytestmark = pytest.mark.local_cloud
NO_NAMESPACES = ()


@pytest.fixture
def spec(tmp_path):
    (tmp_path / "greeting.txt").write_text("hi")
    return ContainerSpec(
        command=(sys.executable, "-I", str(ROOT / "tests" / "local_cloud" / "answering_server.py")),
        environment={
            "PATH": os.environ["PATH"],
            "ROUNDHOUSE_BIND_ADDRESS": "127.0.0.1",
            "SAGEMAKER_BIND_TO_PORT": "8080",
            "SM_MODEL_DIR": str(tmp_path),
            MARK: tmp_path.name,
        },
        folder=tmp_path,
        log=tmp_path / "server.log",
    )


def ready(client):
    def ping():
        try:
            return client.request("GET", "/ping").status == 200
        except NotListening:
            return None

    return until(ping)


def test_container_without_namespaces_answers_warns_and_ends_with_its_control(spec):
    container = start_container(spec, NO_NAMESPACES)
    client = ServerClient(container.connection)
    assert ready(client)
    assert b'"greeting": "hi"' in client.request("POST", "/invocations", b"x").body
    assert spec.log.read_text().startswith("warning: this kernel allows no namespaces")
    client.close()
    container.control.close()
    assert container.process.wait(10) == 137
    assert wait_until_gone(spec.folder.name)
