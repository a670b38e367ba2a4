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


def descendants(root: int, name: str) -> list[int]:
    """Return the processes of a name that descend from one, which is of any namespace."""
    parents: dict[int, int] = {}
    names: dict[int, str] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = path.read_text()
        except OSError:
            continue
        pid = int(text.split(" ", 1)[0])
        names[pid] = text.partition("(")[2].rpartition(")")[0]
        parents[pid] = int(text.rpartition(")")[2].split()[1])

    def descends(pid: int) -> bool:
        while pid in parents:
            if pid == root:
                return True
            pid = parents[pid]
        return False

    return [pid for pid in names if name.startswith(names[pid]) and names[pid] and descends(pid)]
