"""The Python server as a process of its own, outside of any namespace."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tests.fixtures.tiny_embedder.archive import REPOSITORY

PYTHON = REPOSITORY / ".venvs" / "server" / "bin" / "python"
SECONDS = 60.0
"""What even a slow machine does sooner."""
REAL, FAULTY = "container.server", "tests.contract.faulty_engine"
Result = TypeVar("Result")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def launch(
    archive: Path, log: Path, port: int, *, module: str = REAL, limit: str = "", **variables: str
) -> subprocess.Popen[bytes]:
    """Start a server, which is not ready when this returns; `limit` are prlimit's arguments."""
    environment = {
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": str(REPOSITORY),
        "PYTHONUNBUFFERED": "1",
        "SM_MODEL_DIR": str(archive),
        "SAGEMAKER_BIND_TO_PORT": str(port),
        "ROUNDHOUSE_BIND_ADDRESS": "127.0.0.1",
    }
    command = (*limit.split(), str(PYTHON), "-W", "error", "-m", module, "serve")
    with log.open("ab") as file:
        return subprocess.Popen(
            command, env=environment | variables, cwd=log.parent, stdout=file, stderr=file
        )


def until(condition: Callable[[], Result], awaited: str) -> Result:
    """Return what the condition comes to, once that is true; fails after a while."""
    deadline = time.monotonic() + SECONDS
    while not (result := condition()):
        assert time.monotonic() < deadline, f"never came: {awaited}"
        time.sleep(0.01)
    return result
