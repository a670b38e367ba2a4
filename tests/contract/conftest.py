"""The servers that one suite asks.

Ours, and real Triton in both of its SageMaker modes, each a process of its own.
"""

from __future__ import annotations

import http.client
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from local_cloud.containers.container import Container, ContainerSpec, start_container
from local_cloud.containers.server_client import Response, ServerClient
from onboarding.serve_environment import serve_environment
from tests.contract.replies import KINDS, is_multi_model
from tests.fixtures.tiny_embedder.archive import EMBEDDER, REPOSITORY, Tiny, write_archive

SECONDS = 180.0
POLL_SECONDS = 0.02
TARGET_MODEL = "0123456789abcdef/model.tar.gz"
TRITON = REPOSITORY / ".venvs" / "triton"
SERVER = REPOSITORY / ".venvs" / "server"
PYTHON = {"python-server": SERVER, "python-mme": SERVER, "triton-sme": TRITON, "triton-mme": TRITON}


@dataclass(frozen=True, kw_only=True)
class Served:
    """A running server and how its one model is asked."""

    kind: str
    container: Container
    client: ServerClient
    infer_path: str = "/invocations"
    headers: Mapping[str, str] = field(default_factory=dict)

    def ask(self, body: bytes, content_type: str = "application/json", **headers: str) -> Response:
        """One inference request."""
        return self.client.request(
            "POST", self.infer_path, body, {"Content-Type": content_type, **self.headers, **headers}
        )


def command(kind: str, folder: Path) -> tuple[str, ...]:
    """What the image of a server runs."""
    python = str(PYTHON[kind] / "bin" / "python")
    if kind.startswith("python-"):
        return (python, "-W", "error", "-m", "container.server", "serve")
    serve = REPOSITORY / "local_cloud" / "containers" / "triton_serve.py"
    return (
        python,
        "-I",
        "-S",
        str(serve),
        "--triton",
        str(TRITON),
        "--backends",
        str(folder / "backends"),
    )


def environment(
    kind: str, archive: Path, *, model: str = EMBEDDER.model, **extra: str
) -> dict[str, str]:
    """What SageMaker puts into a container's environment."""
    chosen = {"SAGEMAKER_MULTI_MODEL": "true"} if is_multi_model(kind) else {}
    if kind.startswith("triton-"):
        chosen |= serve_environment(None if is_multi_model(kind) else model)
    found = {
        "PATH": f"{PYTHON[kind]}/bin:/usr/bin:/bin",
        "PYTHONPATH": str(REPOSITORY),
        "PYTHONUNBUFFERED": "1",
    }
    return (
        found
        | {"SM_MODEL_DIR": str(archive), "ROUNDHOUSE_BIND_ADDRESS": "127.0.0.1"}
        | chosen
        | extra
    )


def start(
    kind: str, archive: Path, folder: Path, *, model: str = EMBEDDER.model, **extra: str
) -> Container:
    """Starts a server in a container whose loopback is its own."""
    folder.mkdir(parents=True, exist_ok=True)
    return start_container(
        ContainerSpec(
            command=command(kind, folder),
            environment=environment(kind, archive, model=model, HOME=str(folder), **extra),
            folder=folder,
            log=folder / "server.log",
        )
    )


def wait_until_healthy(container: Container, client: ServerClient, path: str = "/ping") -> None:
    """Polls its health; a server that ends or takes too long fails the test with its log."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline and container.exit_status() is None:
        try:
            if client.request("GET", path, timeout_seconds=5).status == 200:
                return
        except (OSError, http.client.HTTPException):
            pass
        time.sleep(POLL_SECONDS)
    pytest.fail(
        f"not healthy, exit status {container.exit_status()}: "
        f"{container.spec.log.read_text()[-2000:]}"
    )


def exit_status(container: Container) -> int:
    """How a server that should end by itself ends."""
    return container.process.wait(SECONDS)


def load(
    client: ServerClient, url: Path, *, name: str = "hash", target: str = TARGET_MODEL
) -> Response:
    """Asks a multi-model server to load an archive, as SageMaker does."""
    body = json.dumps({"model_name": name, "url": str(url)}).encode()
    return client.request(
        "POST",
        "/models",
        body,
        {"Content-Type": "application/json", "X-Amzn-SageMaker-Target-Model": target},
    )


@pytest.fixture(scope="session")
def archive(archives: Callable[[Tiny], Path]) -> Path:
    """The embedder's archive, which all three servers load: the same bytes."""
    return archives(EMBEDDER)


@pytest.fixture(scope="session")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Tiny], Path]:
    """Gives each tiny network's archive, written at its first use."""
    written: dict[str, Path] = {}

    def one(tiny: Tiny) -> Path:
        if tiny.model not in written:
            written[tiny.model] = tmp_path_factory.mktemp("archive") / "model"
            write_archive(written[tiny.model], tiny)
        return written[tiny.model]

    return one


@pytest.fixture(scope="session")
def launched(
    archives: Callable[[Tiny], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., Served]]:
    """Gives each kind of server with one of the tiny networks.

    Started at its first use and stopped at the end.
    """
    running: dict[tuple[str, str], Served] = {}

    def served(kind: str, tiny: Tiny = EMBEDDER) -> Served:
        if (kind, tiny.model) not in running:
            running[kind, tiny.model] = serve(
                kind, archives(tiny), tmp_path_factory.mktemp(kind), model=tiny.model
            )
        return running[kind, tiny.model]

    yield served
    for one in running.values():
        one.client.close()
        one.container.stop(10)


def serve(kind: str, archive: Path, folder: Path, *, model: str, **extra: str) -> Served:
    """Starts a server and, in multi-model mode, loads the archive."""
    empty = folder / "empty"
    empty.mkdir(parents=True)
    container = start(
        kind, empty if is_multi_model(kind) else archive, folder, model=model, **extra
    )
    client = ServerClient(container.connection)
    try:
        wait_until_healthy(container, client)
        if not is_multi_model(kind):
            return Served(kind=kind, container=container, client=client)
        answer = load(client, archive)
        assert answer.status == 200, answer.body
    except BaseException:
        client.close()
        container.stop(0)
        raise
    headers = {"X-Amzn-SageMaker-Target-Model": TARGET_MODEL}
    return Served(
        kind=kind,
        container=container,
        client=client,
        infer_path="/models/hash/invoke",
        headers=headers,
    )


@pytest.fixture(params=KINDS)
def served(request: pytest.FixtureRequest, launched: Callable[..., Served]) -> Served:
    """One server after the other."""
    return launched(request.param)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks the folder's tests, and says what is missing where Triton is not installed."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.contract)
            if not TRITON.exists() or sys.platform != "linux":
                item.add_marker(pytest.mark.skip(reason=f"needs Linux and Triton in {TRITON}"))
