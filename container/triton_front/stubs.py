"""The python backend's stub processes of a running Triton, read from /proc.

Triton starts one for each instance of a Python model, and never replaces nor waits for one that
died.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

STUB = "triton_python_backend_stub"
PROC = Path("/proc")


class Stub(NamedTuple):
    """A stub process; `model` is the path of the Python file that it runs, "" once it is dead."""

    pid: int
    model: str
    alive: bool


def stub_processes(triton: int, proc: Path = PROC) -> tuple[Stub, ...]:
    """Return the stubs of a Triton process, dead ones that it has not waited for included."""
    children: set[int] = set()
    for path in proc.glob(f"{triton}/task/*/children"):
        try:
            children.update(map(int, path.read_text().split()))
        except OSError:  # a thread that has just ended
            continue
    return tuple(stub for pid in sorted(children) if (stub := _stub(pid, proc)) is not None)


def _stub(pid: int, proc: Path) -> Stub | None:
    try:
        name, _, fields = (proc / f"{pid}/stat").read_text().partition("(")[2].rpartition(")")
        arguments = (proc / f"{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return None
    if not name or not STUB.startswith(name):
        return None
    alive = fields.split()[0] not in ("Z", "X")
    model = arguments[1].decode(errors="replace") if len(arguments) > 1 else ""
    return Stub(pid, model, alive)
