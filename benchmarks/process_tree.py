"""Processes by their parents, and what memory they have: looked up in /proc."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def process_trees(roots: Iterable[int]) -> tuple[int, ...]:
    """These processes and everything that they started."""
    children: dict[int, list[int]] = defaultdict(list)
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            children[_parent(entry.path)].append(int(entry.name))
    found = list(roots)
    for pid in found:
        found.extend(children[pid])
    return tuple(found)


def resident_bytes(pid: int) -> int:
    """A process's resident memory; 0 once it has ended."""
    try:
        return int(Path("/proc", str(pid), "statm").read_text().split()[1]) * PAGE_BYTES
    except (OSError, IndexError):
        return 0


def _parent(place: str) -> int:
    try:
        return int(Path(place, "stat").read_bytes().rpartition(b")")[2].split()[1])
    except (OSError, IndexError):
        return 0
