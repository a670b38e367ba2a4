"""The servers of the suite: ours, and real Triton in both of its SageMaker modes.

Each is a process of its own.
"""

from __future__ import annotations

import http.client
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from container.wire import arrays_of
from local_cloud.containers.container import Container, ContainerSpec, start_container
from local_cloud.containers.server_client import Response, ServerClient
from onboarding.serve_environment import serve_environment
from tests.contract.replies import KINDS, is_multi_model
from tests.fixtures.tiny_embedder.archive import EMBEDDER, REPOSITORY, Tiny, write_archive

SECONDS = 180.0
COMPILING = 900.0
"""torch.compile makes two variants of a program, each by g++: a minute of one core in all."""
POLL_SECONDS = 0.02
TARGET_HEADER = "X-Amzn-SageMaker-Target-Model"
TARGET_MODEL = "0123456789abcdef/model.tar.gz"
TRITON = REPOSITORY / ".venvs" / "triton"
SERVER = REPOSITORY / ".venvs" / "server"
PYTHON = {"python-server": SERVER, "triton-sme": TRITON, "triton-mme": TRITON}
BASELINE = "python-baseline"
PYTHON[BASELINE] = REPOSITORY / ".venvs" / "builder"


@dataclass(frozen=True, kw_only=True)
class Served:
    """A running server and the path of its one model."""

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
    if kind == BASELINE:
        # torch's own warnings are no faults of ours.
        return (python, "-m", "container.server", "serve")
    if kind.startswith("python-"):
        return (python, "-W", "error", "-m", "container.server", "serve")
    serve = REPOSITORY / "local_cloud" / "containers" / "triton_serve.py"
    backends = str(folder / "backends")
    return (python, "-I", "-S", str(serve), "--triton", str(TRITON), "--backends", backends)


def environment(
    kind: str, archive: Path, *, model: str = EMBEDDER.model, **extra: str
) -> dict[str, str]:
    """What SageMaker puts into a container's environment."""
    variables = {
        "PATH": f"{PYTHON[kind]}/bin:/usr/bin:/bin",
        "PYTHONPATH": str(REPOSITORY),
        "PYTHONUNBUFFERED": "1",
        "SM_MODEL_DIR": str(archive),
        "ROUNDHOUSE_BIND_ADDRESS": "127.0.0.1",
    }
    if is_multi_model(kind):
        variables["SAGEMAKER_MULTI_MODEL"] = "true"
    if kind == BASELINE:
        packages = next(SERVER.glob("lib/python3*/site-packages"))
        variables["PYTHONPATH"] = f"{REPOSITORY}:{packages}"
    if kind.startswith("triton-"):
        variables |= serve_environment(None if is_multi_model(kind) else model)
    return variables | extra


def start(
    kind: str, archive: Path, folder: Path, *, model: str = EMBEDDER.model, **extra: str
) -> Container:
    """Start a server in a container whose loopback is its own."""
    folder.mkdir(parents=True, exist_ok=True)
    return start_container(
        ContainerSpec(
            command=command(kind, folder),
            environment=environment(kind, archive, model=model, HOME=str(folder), **extra),
            folder=folder,
            log=folder / "server.log",
        )
    )


def wait_until_healthy(container: Container, client: ServerClient, seconds: float) -> None:
    """Poll its health; a server that ends or takes too long fails the test with its log."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and container.exit_status() is None:
        try:
            if client.request("GET", "/ping", timeout_seconds=5).status == 200:
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


def end_of(kind: str, archive: Path, folder: Path, **extra: str) -> tuple[int, str]:
    """The exit status and the log of a server that must end by itself."""
    container = start(kind, archive, folder, **extra)
    try:
        status = exit_status(container)
    finally:
        container.stop(0)
    return status, container.spec.log.read_text()


def load(
    client: ServerClient, url: Path, *, name: str = "hash", target: str = TARGET_MODEL
) -> Response:
    """Load an archive into a multi-model server, as SageMaker does."""
    body = json.dumps({"model_name": name, "url": str(url)}).encode()
    headers = {"Content-Type": "application/json", TARGET_HEADER: target}
    return client.request("POST", "/models", body, headers)


@contextmanager
def serving(
    kind: str, archive: Path, folder: Path, *, model: str = EMBEDDER.model, **extra: str
) -> Iterator[Served]:
    """A server, which has loaded the archive also in multi-model mode."""
    empty = folder / "empty"
    empty.mkdir(parents=True)
    root = empty if is_multi_model(kind) else archive
    container = start(kind, root, folder, model=model, **extra)
    client = ServerClient(container.connection)
    try:
        wait_until_healthy(container, client, COMPILING if kind == BASELINE else SECONDS)
        served = Served(kind=kind, container=container, client=client)
        if is_multi_model(kind):
            answer = load(client, archive)
            assert answer.status == 200, answer.body
            served = replace(
                served, infer_path="/models/hash/invoke", headers={TARGET_HEADER: TARGET_MODEL}
            )
        yield served
    finally:
        client.close()
        container.stop(10)


def rows(answer: Response, output: str = "embedding") -> Any:
    """The rows of an answer that is one."""
    assert answer.status == 200, answer.body
    return arrays_of(answer.body, answer.headers["content-type"])[output]


@pytest.fixture(scope="session")
def archive(archives: Callable[[Tiny], Path]) -> Path:
    """The embedder's archive, which all three servers load: the same bytes."""
    return archives(EMBEDDER)


@pytest.fixture(scope="session")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Tiny], Path]:
    """Gives each tiny network's archive, written at its first use."""

    @cache
    def one(tiny: Tiny) -> Path:
        root = tmp_path_factory.mktemp("archive") / "model"
        write_archive(root, tiny)
        return root

    return one


@pytest.fixture(scope="session")
def launched(
    archives: Callable[[Tiny], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., Served]]:
    """Gives each kind of server with one of the tiny networks, started at its first use."""
    with ExitStack() as running:

        @cache
        def launch(kind: str, tiny: Tiny = EMBEDDER) -> Served:
            folder = tmp_path_factory.mktemp(kind)
            return running.enter_context(serving(kind, archives(tiny), folder, model=tiny.model))

        yield launch


@pytest.fixture(params=KINDS)
def server(request: pytest.FixtureRequest, launched: Callable[..., Served]) -> Served:
    """One server after the other."""
    return launched(request.param)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the folder's tests, and skip them where Triton is not installed."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.contract)
            if not TRITON.exists() or sys.platform != "linux":
                item.add_marker(pytest.mark.skip(reason=f"needs Linux and Triton in {TRITON}"))
