"""The doctor, on machines that lack one thing or many."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from roundhouse.dev.doctor import (
    CHAT_DISK_GIB,
    DEMO_DISK_GIB,
    FIRST_MEMORY_GIB,
    GIB,
    LATER_DISK_GIB,
    LIBPYTHON,
    Machine,
    main,
    missing,
    needed_disk_gib,
)

SOUND = Machine(
    python=(3, 11),
    has_venv=True,
    node_major=20,
    missing_programs=(),
    has_libpython=True,
    is_writable=True,
    free_disk_bytes=DEMO_DISK_GIB * GIB,
    free_memory_bytes=FIRST_MEMORY_GIB * GIB,
)


def machine(**changes):
    return dataclasses.replace(SOUND, **changes)


def test_a_sound_machine_lacks_nothing(tmp_path, capsys):
    assert main(tmp_path, SOUND) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert captured.out == "Disk: 8 GB needed, 11 GB with `make demo-chat`; 8.0 GB are free\n"


def test_refuses_the_chat_demo_where_its_disk_is_missing(tmp_path, capsys):
    assert main(tmp_path, SOUND, chat=True) == 1
    assert "11 GB of free disk" in capsys.readouterr().err


def test_disk_is_needed_for_what_is_not_made_yet(tmp_path, capsys):
    assert needed_disk_gib(tmp_path, chat=True) == DEMO_DISK_GIB + CHAT_DISK_GIB
    (tmp_path / ".venvs/builder").mkdir(parents=True)
    assert needed_disk_gib(tmp_path, chat=False) == LATER_DISK_GIB
    assert needed_disk_gib(tmp_path, chat=True) == CHAT_DISK_GIB
    for name in ("quantizer", "vllm"):
        (tmp_path / ".venvs" / name).mkdir()
    assert needed_disk_gib(tmp_path, chat=True) == LATER_DISK_GIB
    assert main(tmp_path, SOUND) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("lacks", "thing", "line"),
    [
        ({"python": (3, 9)}, "this is 3.9", "python3.11"),
        ({"has_venv": False}, "venv module", "python3.11-venv"),
        ({"node_major": 0}, "there is none", "setup_20"),
        ({"node_major": 18}, "this is 18", "nodejs"),
        ({"missing_programs": ("npm",)}, "npm", "nodejs"),
        ({"missing_programs": ("unshare", "setpriv")}, "unshare and setpriv", "util-linux"),
        ({"has_libpython": False}, LIBPYTHON, "apt-get install libpython3.11"),
        ({"free_disk_bytes": 8 * GIB - 1}, "8 GB of free disk", "free some space"),
        ({"free_memory_bytes": 4 * GIB - 1}, "4 GB of free memory", "close some programs"),
        ({"is_writable": False}, "leave to write", "chown"),
    ],
)
def test_refuses_a_machine_that_lacks(lacks, thing, line):
    ((lacking, way_out),) = missing(machine(**lacks), Path("/somewhere"), DEMO_DISK_GIB)
    assert thing in lacking and line in way_out


def test_everything_missing_is_named_at_once(tmp_path, capsys):
    lacks = {"node_major": 0, "has_libpython": False, "missing_programs": ("setpriv",)}
    assert main(tmp_path, machine(**lacks, free_disk_bytes=0, free_memory_bytes=0)) == 1
    assert capsys.readouterr().err.count("missing:") == 5
