"""What processes use of this machine: CPU time, memory and disk of a process and everything that it
started.
"""

from __future__ import annotations

import os
import shutil
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, kw_only=True)
class Usage:
    """CPU seconds since the processes began, and resident memory in bytes; pages that they share
    count for each.
    """

    cpu_seconds: float
    memory_bytes: int


@dataclass(frozen=True, kw_only=True)
class _Process:
    parent: int
    usage: Usage


def usage_of_trees(roots: Collection[int]) -> Mapping[int, Usage]:
    """What each root process and its descendants use, from one look at all processes; a root that
    is gone uses nothing.
    """
    processes = _processes()
    children: dict[int, list[int]] = defaultdict(list)
    for pid, process in processes.items():
        children[process.parent].append(pid)
    return {root: _total(root, processes, children) for root in roots}


def memory_bytes() -> int:
    """This machine's memory."""
    return os.sysconf("SC_PHYS_PAGES") * PAGE_BYTES


def disk_percent(folder: Path) -> float:
    """The share of its disk that a folder's files take, in percent; links are not followed."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += (Path(place) / name).lstat().st_blocks * 512
            except FileNotFoundError:
                continue
    return 100 * total / shutil.disk_usage(folder).total if folder.exists() else 0.0


def _processes() -> dict[int, _Process]:
    found = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            process = _process(entry.path)
            if process is not None:
                found[int(entry.name)] = process
    return found


def _process(place: str) -> _Process | None:
    """One process from its stat file; None when it has just ended."""
    try:
        fields = Path(place, "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    cpu = sum(int(each) for each in fields[11:15]) / TICKS_A_SECOND
    return _Process(
        parent=int(fields[1]),
        usage=Usage(cpu_seconds=cpu, memory_bytes=int(fields[21]) * PAGE_BYTES),
    )


def _total(
    root: int, processes: Mapping[int, _Process], children: Mapping[int, list[int]]
) -> Usage:
    waiting, cpu, memory = [root], 0.0, 0
    while waiting:
        pid = waiting.pop()
        waiting.extend(children.get(pid, ()))
        if pid in processes:
            cpu += processes[pid].usage.cpu_seconds
            memory += processes[pid].usage.memory_bytes
    return Usage(cpu_seconds=cpu, memory_bytes=memory)
