"""How much memory this machine, or the control group that this process lives in, has left."""

from __future__ import annotations

from pathlib import Path

MIB = 1024 * 1024
GROUP = Path("/sys/fs/cgroup")
MACHINE = Path("/proc/meminfo")


def free_mib(*, group: Path = GROUP, machine: Path = MACHINE) -> float | None:
    """MiB that may still be taken: of the control group (version 2) where it is limited, and of the
    machine; the lesser.

    File pages that the group could give back count as free. `None` when neither can be read.
    """
    known = [found for found in (_group_mib(group), _machine_mib(machine)) if found is not None]
    return min(known, default=None)


def _group_mib(group: Path) -> float | None:
    try:
        limit = (group / "memory.max").read_text().strip()
        if limit == "max":
            return None
        used = int((group / "memory.current").read_text())
        return (int(limit) - used + _reclaimable(group)) / MIB
    except (OSError, ValueError):
        return None


def _reclaimable(group: Path) -> int:
    lines = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    return int(lines.get("inactive_file", 0))


def _machine_mib(machine: Path) -> float | None:
    try:
        lines = dict(line.split(":", 1) for line in machine.read_text().splitlines())
        return int(lines["MemAvailable"].split()[0]) / 1024
    except (OSError, ValueError, KeyError):
        return None
