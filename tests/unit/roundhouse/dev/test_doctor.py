"""The doctor, asking machines that lack one thing or many."""

from __future__ import annotations

from pathlib import Path

import pytest

from roundhouse.dev.doctor import (
    DISK_BYTES_FIRST,
    LIBPYTHON,
    MEMORY_BYTES_FIRST,
    Probes,
    main,
    missing,
)


class Machine(Probes):
    """A sound machine, but for what a test takes away."""

    def __init__(self, **lacks) -> None:
        self.lacks = lacks

    def python(self):
        return self.lacks.get("python", (3, 11))

    def has_venv(self):
        return self.lacks.get("has_venv", True)

    def has_program(self, name):
        return name not in self.lacks.get("programs", ())

    def node_major(self):
        return self.lacks.get("node", 20)

    def has_library(self, name):
        return name not in self.lacks.get("libraries", ())

    def free_disk_bytes(self, folder):
        return self.lacks.get("disk", DISK_BYTES_FIRST)

    def free_memory_bytes(self):
        return self.lacks.get("memory", MEMORY_BYTES_FIRST)

    def writable(self, folder):
        return self.lacks.get("writable", True)


def test_a_sound_machine_lacks_nothing(tmp_path, capsys):
    assert main(tmp_path, Machine()) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("lacks", "what", "line"),
    [
        ({"python": (3, 9)}, "this is 3.9", "python3.11"),
        ({"has_venv": False}, "venv module", "python3.11-venv"),
        ({"node": 0}, "there is none", "setup_20"),
        ({"node": 18}, "this is 18", "nodejs"),
        ({"programs": ("npm",)}, "npm", "nodejs"),
        ({"programs": ("unshare", "setpriv")}, "unshare and setpriv", "util-linux"),
        ({"libraries": (LIBPYTHON,)}, LIBPYTHON, "apt-get install libpython3.11"),
        ({"disk": DISK_BYTES_FIRST - 1}, "6 GB of free disk", "free some space"),
        ({"memory": MEMORY_BYTES_FIRST - 1}, "4 GB of free memory", "close some programs"),
        ({"writable": False}, "leave to write", "chown"),
    ],
)
def test_refuses_a_machine_that_lacks(lacks, what, line):
    (found,) = missing(Machine(**lacks), Path("/somewhere"), first=True)
    assert what in found.what
    assert line in found.line


def test_everything_missing_is_named_at_once(tmp_path, capsys):
    lacks = {"node": 0, "libraries": (LIBPYTHON,), "programs": ("setpriv",), "disk": 0, "memory": 0}
    assert main(tmp_path, Machine(**lacks)) == 1
    said = capsys.readouterr().err
    assert said.count("missing:") == 5


def test_a_machine_with_environments_needs_little_room():
    assert (
        missing(
            Machine(disk=DISK_BYTES_FIRST // 2, memory=MEMORY_BYTES_FIRST // 2),
            Path("/somewhere"),
            first=False,
        )
        == []
    )


def test_the_real_probes_answer():
    probes = Probes()
    assert probes.python() >= (3, 11)
    assert probes.has_program("sh")
    assert not probes.has_library("libnothing-at-all.so.0")
    assert probes.free_memory_bytes() > 0
