"""An engine's archive behind the Python server, or behind Triton, as processes of this machine."""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from container.wire import rows_of, text_request
from local_cloud.containers.container import free_port
from local_cloud.containers.server_client import ServerClient
from local_cloud.containers.triton_serve import (
    IMAGE,
    ServeError,
    checking_server,
    served_variables,
    triton_command,
)
from onboarding.serve_environment import serve_environment
from roundhouse.errors import NotReadyError, WrongAnswerError
from roundhouse.invocation import Vector
from roundhouse.processes import Command, Outcome, Processes

ADDRESS = "127.0.0.1"
START_SECONDS, LOOK_SECONDS, PING_SECONDS = 180.0, 0.1, 5.0
KEPT_LINES = 8
STUB_PROGRAMS = Path(__file__).resolve().parents[3] / ".venvs" / "triton" / "bin"
"""First on the path of a Triton from the wheel nvidia-pytriton, whose libraries lie in *.libs.

Its stub takes the packages of the path's first Python, and NumPy 1 alone: it misreads BYTES tensors
under NumPy 2. NVIDIA's image has a NumPy that fits.
"""


@dataclass(frozen=True, kw_only=True)
class Server:
    """A server that is healthy, and how long it took."""

    client: ServerClient
    ready_seconds: float

    def vectors(self, texts: Sequence[str]) -> tuple[Vector, ...]:
        """Return a vector per text, asked for at once. Raises WrongAnswerError."""
        body, content_type = text_request(texts, binary=True)
        answer = self.client.request("POST", "/invocations", body, {"Content-Type": content_type})
        if answer.status != 200:
            words = answer.body.decode(errors="replace")[:500]
            raise WrongAnswerError(f"the server answers {answer.status}: {words}")
        rows = rows_of(answer.body, answer.headers["content-type"])
        return tuple(tuple(row) for row in rows.tolist())


def triton_backends(tritonserver: Path) -> Path:
    """Return the folder backends/ beside the program's bin/, or above. Raises NotReadyError."""
    for folder in tritonserver.resolve().parents[1:]:
        if (folder / "backends").is_dir():
            return folder / "backends"
    raise NotReadyError(
        f"{tritonserver} has no folder backends/ beside its bin/ or above: install Triton whole, "
        "as nvcr.io/nvidia/tritonserver has it."
    )


def triton_server(
    python: str, tritonserver: Path, model: str | None, variables: Mapping[str, str]
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return command and variables of the server before Triton, whose command ends in Triton's.

    No model: of a multi-model endpoint. `variables` replace those of a deployed endpoint. Raises
    NotReadyError.
    """
    backends = triton_backends(tritonserver)
    libraries = tuple(map(str, backends.parent.glob("*.libs")))
    places = {"LD_LIBRARY_PATH": libraries, "PATH": (f"{STUB_PROGRAMS}",)} if libraries else {}
    try:
        served = served_variables({**IMAGE, **serve_environment(model), **variables})
    except ServeError as error:
        raise NotReadyError(f"Triton cannot serve the archive: {error}") from error
    command = triton_command(served, tritonserver.resolve().parents[1], backends)
    first = {
        name: ":".join(filter(None, (*folders, variables.get(name, ""))))
        for name, folders in places.items()
    }
    return (*checking_server(python), *command), {**served, **first}


@contextmanager
def serving(
    archive: Path,
    model: str,
    *,
    python: str,
    variables: Mapping[str, str],
    tritonserver: Path | None = None,
) -> Iterator[Server]:
    """Serve an unpacked archive by Python's server, or by Triton where its program is named.

    Raises NotReadyError with the server's last words where it does not become healthy.
    """
    port = free_port()
    own = {
        **variables,
        "SM_MODEL_DIR": f"{archive}",
        "SAGEMAKER_BIND_TO_PORT": f"{port}",
        "ROUNDHOUSE_BIND_ADDRESS": ADDRESS,
    }
    argv: tuple[str, ...] = (python, "-m", "container.server", "serve")
    if tritonserver is not None:
        argv, own = triton_server(python, tritonserver, model, own)
    client = ServerClient(lambda seconds: socket.create_connection((ADDRESS, port), seconds))
    processes, pool = Processes(), ThreadPoolExecutor(1)
    lines: deque[str] = deque(maxlen=KEPT_LINES)
    begin = time.monotonic()
    try:
        ended = pool.submit(processes, Command(argv=argv, environment=own), lines.append)
        while not client.is_healthy(PING_SECONDS):
            how = _wait(ended, LOOK_SECONDS)
            if how is None and time.monotonic() - begin > START_SECONDS:
                how = f"is not healthy after {START_SECONDS:.0f} s"
            if how is not None:
                words = " | ".join(filter(None, map(str.strip, lines)))
                raise NotReadyError(f"`{' '.join(argv[:3])} …` {how}: {words or 'no output'}")
        yield Server(client=client, ready_seconds=time.monotonic() - begin)
    finally:
        client.close()
        processes.stop()
        pool.shutdown()


def _wait(ended: Future[Outcome], seconds: float) -> str | None:
    """Return how a server ended; None where it still runs after a while."""
    try:
        return f"ended with {ended.result(seconds).code}"
    except NotYet:
        return None
