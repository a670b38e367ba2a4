"""Finds what a machine lacks, and names the line that installs each missing thing.

Standard library only.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

PYTHON = (3, 11)
NODE = 20
LIBPYTHON = "libpython3.11.so.1.0"
DISK_BYTES_FIRST = 6 * 1024**3
DISK_BYTES_LATER = 1 * 1024**3
MEMORY_BYTES_FIRST = 4 * 1024**3
MEMORY_BYTES_LATER = 1 * 1024**3


class Probes:
    """The questions a machine answers."""

    def python(self) -> tuple[int, int]:
        """Version of the interpreter that runs this."""
        return sys.version_info[0], sys.version_info[1]

    def has_venv(self) -> bool:
        """Debian ships `venv` apart from Python."""
        try:
            import ensurepip  # noqa: F401
            import venv  # noqa: F401
        except ImportError:
            return False
        return True

    def has_program(self, name: str) -> bool:
        """Return whether a program is on the path."""
        return shutil.which(name) is not None

    def node_major(self) -> int:
        """Major version of Node; 0 when there is none."""
        try:
            text = subprocess.run(
                ["node", "--version"], capture_output=True, text=True, timeout=30
            ).stdout
            return int(text.strip().lstrip("v").split(".")[0])
        except (OSError, ValueError, subprocess.TimeoutExpired):
            return 0

    def has_library(self, name: str) -> bool:
        """Return whether the dynamic loader finds a library."""
        try:
            ctypes.CDLL(name)
        except OSError:
            return False
        return True

    def free_disk_bytes(self, folder: Path) -> int:
        """Free space where the environments go."""
        return shutil.disk_usage(str(folder)).free

    def free_memory_bytes(self) -> int:
        """Memory that could be used without swapping."""
        try:
            for line in Path("/proc/meminfo").read_text().splitlines():
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
        except OSError:
            pass
        return MEMORY_BYTES_FIRST

    def writable(self, folder: Path) -> bool:
        """Return whether files may be made in a folder."""
        return os.access(str(folder), os.W_OK)


@dataclass(frozen=True)
class Missing:
    """One thing a machine lacks, and the line that provides it."""

    what: str
    line: str

    def __str__(self) -> str:
        return f"  missing: {self.what}\n           {self.line}"


def missing(probes: Probes, folder: Path, first: bool) -> list[Missing]:
    """Everything a machine lacks; `first`: no environment is made yet, so their space is needed."""
    return _python(probes) + _node(probes) + _system(probes) + _capacity(probes, folder, first)


def _python(probes: Probes) -> list[Missing]:
    major, minor = probes.python()
    if (major, minor) != PYTHON:
        what = f"Python 3.11 (this is {major}.{minor})"
        return [
            Missing(
                what,
                "sudo apt-get install python3.11 python3.11-venv   # then: make demo "
                "PYTHON=python3.11",
            )
        ]
    if not probes.has_venv():
        return [Missing("the venv module of Python 3.11", "sudo apt-get install python3.11-venv")]
    return []


def _node(probes: Probes) -> list[Missing]:
    install = (
        "curl -fsSL https://deb.nodesource.com/setup_20.x | sudo -E bash - && sudo "
        "apt-get install nodejs"
    )
    major = probes.node_major()
    if major < NODE:
        given = f"this is {major}" if major else "there is none"
        return [Missing(f"Node {NODE} or newer ({given})", install)]
    if not probes.has_program("npm"):
        return [Missing("npm", install)]
    return []


def _system(probes: Probes) -> list[Missing]:
    found = []
    if not probes.has_library(LIBPYTHON):
        found.append(
            Missing(
                f"{LIBPYTHON}, which Triton's Python stub loads",
                "sudo apt-get install libpython3.11",
            )
        )
    tools = [name for name in ("unshare", "setpriv") if not probes.has_program(name)]
    if tools:
        found.append(
            Missing(
                f"{' and '.join(tools)}, which fence the local containers",
                "sudo apt-get install util-linux",
            )
        )
    return found


def _capacity(probes: Probes, folder: Path, first: bool) -> list[Missing]:
    found = []
    need = DISK_BYTES_FIRST if first else DISK_BYTES_LATER
    if not probes.writable(folder):
        found.append(Missing(f"leave to write in {folder}", f"sudo chown -R $USER {folder}"))
    free = probes.free_disk_bytes(folder)
    if free < need:
        what = (
            f"{need / 1024**3:.0f} GB of free disk in {folder} ({free / 1024**3:.1f} GB are free)"
        )
        found.append(Missing(what, "free some space, or clone onto a larger disk"))
    memory = probes.free_memory_bytes()
    memory_need = MEMORY_BYTES_FIRST if first else MEMORY_BYTES_LATER
    if memory < memory_need:
        what = f"{memory_need / 1024**3:.0f} GB of free memory ({memory / 1024**3:.1f} GB are free)"
        found.append(Missing(what, "close some programs, or use a larger machine"))
    return found


def main(root: Path, probes: Probes) -> int:
    """Print what is missing, all at once; 0 when nothing is."""
    found = missing(probes, root, not (root / ".venvs" / "builder").is_dir())
    if not found:
        return 0
    print("This machine is not ready for Roundhouse:", file=sys.stderr)
    for item in found:
        print(item, file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(Path(__file__).resolve().parents[2], Probes()))
