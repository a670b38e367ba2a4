"""Ports, waits and descendants of server processes."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

SECONDS = 60.0
"""What even a slow machine does sooner."""
Result = TypeVar("Result")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


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
