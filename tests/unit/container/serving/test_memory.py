"""What is left of memory, as the kernel writes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from container.server.serving.memory import MIB, free_mib

MACHINE = "MemTotal:       16000000 kB\nMemFree:          100000 kB\nMemAvailable:    8192000 kB\n"


def written(folder: Path, limit: str = "max") -> tuple[Path, Path]:
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text(f"{700 * MIB}\n")
    (folder / "memory.stat").write_text(f"anon 5\ninactive_file {100 * MIB}\nslab 3\n")
    (folder / "meminfo").write_text(MACHINE)
    return folder, folder / "meminfo"


@pytest.mark.parametrize(
    ("limit", "mib"),
    [("max", 8000), (str(1000 * MIB), 400), (str(90_000 * MIB), 8000), (str(500 * MIB), -100)],
)
def test_lesser_of_the_groups_and_the_machines_counts(tmp_path, limit, mib):
    group, machine = written(tmp_path, limit)
    assert free_mib(group=group, machine=machine) == mib


def test_machine_counts_where_there_is_no_group(tmp_path):
    _, machine = written(tmp_path)
    assert free_mib(group=tmp_path / "none", machine=machine) == 8000


def test_nothing_is_known_where_nothing_can_be_read(tmp_path):
    (tmp_path / "odd").write_text("no numbers")
    for machine in (tmp_path / "none", tmp_path / "odd"):
        assert free_mib(group=tmp_path, machine=machine) is None
