"""The Python server as its image runs it.

Another user than root, nothing writable, no network but its own loopback.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from local_cloud.containers.container import Container, ContainerSpec, start_container
from local_cloud.containers.server_client import ServerClient
from tests.contract.conftest import command, environment, wait_until_healthy
from tests.contract.requests import json_request

pytestmark = pytest.mark.contract

USER = "10001"
READING = ("--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search")
"""The interpreter may lie in a folder that only root reads; an image's does not."""
AS_THAT_USER = ("setpriv", "--reuid", USER, "--regid", USER, "--clear-groups", *READING)
READ_ONLY = 'mount --make-rprivate / && mount -o remount,bind,ro / && exec "$@"'
CONFINED = ("unshare", "--mount", "sh", "-c", READ_ONLY, "sh", *AS_THAT_USER)
OWN_NETWORK = (
    "unshare",
    "--pid",
    "--fork",
    "--kill-child",
    "--net",
    "--mount",
    "--mount-proc",
    "--",
)
"""Namespaces in which root is root: one that is mapped knows no other user."""


@pytest.fixture(scope="module")
def confined(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Container]:
    """The server, confined."""
    trial = (*OWN_NETWORK, *CONFINED, "sh", "-c", "! touch /etc/roundhouse")
    tried = subprocess.run(trial, capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"needs mount namespaces and another user: {tried.stderr.strip()[:200]}")
    folder = tmp_path_factory.mktemp("confined")
    spec = ContainerSpec(
        command=(*CONFINED, *command("python-server", folder)),
        environment=environment("python-server", archive),
        folder=folder,
        log=folder / "server.log",
    )
    container = start_container(spec, OWN_NETWORK)
    yield container
    container.stop(10)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux")
def test_server_answers_as_another_user_on_a_read_only_root(confined: Container):
    client = ServerClient(confined.connection)
    wait_until_healthy(confined, client)
    answer = client.request(
        "POST", "/invocations", json_request(["a text"]), {"Content-Type": "application/json"}
    )
    assert answer.status == 200, answer.body
    assert b"Traceback" not in confined.spec.log.read_bytes()
    client.close()
