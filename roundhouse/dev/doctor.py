"""Finds what a machine lacks, and names the line that installs each missing thing.

Standard library only.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PYTHON = (3, 11)
NODE = 20
PROGRAMS = ("npm", "unshare", "setpriv")
LIBPYTHON = "libpython3.11.so.1.0"
GIB = 1024**3
DEMO_DISK_GIB, CHAT_DISK_GIB, LATER_DISK_GIB = 8, 3, 1
"""Of the environments of `make demo`, what `make demo-chat` adds to them, and what builds write.

With PyPI's build of torch; PyTorch's for CPUs takes about 4 less (not measured).
"""
CHAT = "chat"
FIRST_MEMORY_GIB, LATER_MEMORY_GIB = 4, 1
INSTALL_NODE = (
    "curl -fsSL https://deb.nodesource.com/setup_20.x | sudo -E bash - && sudo apt-get "
    "install nodejs"
)


@dataclass(frozen=True)
class Machine:
    """Facts of a machine; `missing_programs` are those of PROGRAMS that are not on the path."""

    python: tuple[int, int]
    has_venv: bool
    node_major: int
    """0 without Node."""
    missing_programs: tuple[str, ...]
    has_libpython: bool
    is_writable: bool
    free_disk_bytes: int
    free_memory_bytes: int


def this_machine(folder: Path) -> Machine:
    """Return the facts of this machine, and of the disk of a folder."""
    return Machine(
        python=(sys.version_info[0], sys.version_info[1]),
        # Debian ships `venv` apart from Python.
        has_venv=all(importlib.util.find_spec(name) for name in ("ensurepip", "venv")),
        node_major=_node_major(),
        missing_programs=tuple(name for name in PROGRAMS if shutil.which(name) is None),
        has_libpython=_has_library(LIBPYTHON),
        is_writable=os.access(str(folder), os.W_OK),
        free_disk_bytes=shutil.disk_usage(str(folder)).free,
        free_memory_bytes=_free_memory_bytes(),
    )


def _node_major() -> int:
    try:
        version = subprocess.run(
            ["node", "--version"], capture_output=True, text=True, timeout=30
        ).stdout
        return int(version.strip().lstrip("v").split(".")[0])
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return 0


def _has_library(name: str) -> bool:
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def _free_memory_bytes() -> int:
    """Memory that could be used without swapping; enough where the kernel does not tell it."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return FIRST_MEMORY_GIB * GIB


def needed_disk_gib(root: Path, chat: bool) -> int:
    """Return the free disk that what is not made yet takes."""
    environments = root / ".venvs"
    demo = 0 if (environments / "builder").is_dir() else DEMO_DISK_GIB
    made = all((environments / name).is_dir() for name in ("quantizer", "vllm"))
    return max(demo + (CHAT_DISK_GIB if chat and not made else 0), LATER_DISK_GIB)


def missing(machine: Machine, folder: Path, disk: int) -> Iterator[tuple[str, str]]:
    """Yield each thing that a machine lacks with the line that provides it.

    `disk`: what is needed, in GiB; more than LATER_DISK_GIB where environments are to be made.
    """
    if machine.python != PYTHON:
        install = "sudo apt-get install python3.11 python3.11-venv"
        given = "{}.{}".format(*machine.python)
        yield f"Python 3.11 (this is {given})", f"{install}   # then: make demo PYTHON=python3.11"
    elif not machine.has_venv:
        yield "the venv module of Python 3.11", "sudo apt-get install python3.11-venv"
    if machine.node_major < NODE:
        given = f"this is {machine.node_major}" if machine.node_major else "there is none"
        yield f"Node {NODE} or newer ({given})", INSTALL_NODE
    elif "npm" in machine.missing_programs:
        yield "npm", INSTALL_NODE
    if not machine.has_libpython:
        thing = f"{LIBPYTHON}, which Triton's Python stub loads"
        yield thing, "sudo apt-get install libpython3.11"
    tools = [name for name in machine.missing_programs if name != "npm"]
    if tools:
        thing = f"{' and '.join(tools)}, which fence the local containers"
        yield thing, "sudo apt-get install util-linux"
    if not machine.is_writable:
        yield f"leave to write in {folder}", f"sudo chown -R $USER {folder}"
    free = machine.free_disk_bytes
    if free < disk * GIB:
        thing = f"{disk} GB of free disk in {folder} ({free / GIB:.1f} GB are free)"
        yield thing, "free some space, or clone onto a larger disk"
    memory = FIRST_MEMORY_GIB if disk > LATER_DISK_GIB else LATER_MEMORY_GIB
    free = machine.free_memory_bytes
    if free < memory * GIB:
        thing = f"{memory} GB of free memory ({free / GIB:.1f} GB are free)"
        yield thing, "close some programs, or use a larger machine"


def main(root: Path, machine: Machine, chat: bool = False) -> int:
    """Print what is missing, all at once; 0 when nothing is."""
    disk, with_chat = needed_disk_gib(root, chat), needed_disk_gib(root, True)
    if with_chat > LATER_DISK_GIB:
        free = machine.free_disk_bytes / GIB
        print(
            f"Disk: {disk} GB needed, {with_chat} GB with `make demo-chat`; {free:.1f} GB are free",
            flush=True,
        )
    faults = list(missing(machine, root, disk))
    if not faults:
        return 0
    print("This machine is not ready for Roundhouse:", file=sys.stderr)
    for thing, line in faults:
        print(f"  missing: {thing}\n           {line}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    here = Path(__file__).resolve().parents[2]
    sys.exit(main(here, this_machine(here), chat=CHAT in sys.argv[1:]))
