"""`python -m benchmarks.child RESULT PROGRAM ARGUMENT…`.

Runs a program and writes what it took, as JSON.

A process of its own, so that the peak memory is that of this program's process tree and of no
other.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from roundhouse.processes import Command, Processes

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


SAMPLE_SECONDS = 0.01
SAMPLES_A_LOOK = 20
"""Samples between two looks for new processes, which cost more."""


@dataclass(frozen=True, kw_only=True)
class Usage:
    """What a program took."""

    code: int
    seconds: float
    processor_seconds: float
    """User and system time of all its processes."""
    peak_mib: float
    """Of its largest process."""
    peak_sum_mb: float
    """Of all its processes together, sampled; pages that they share count for each."""


def measure_usage(command: Command, result: Path, run: Processes) -> Usage:
    """Runs a program through this module in a fresh process.

    Raises ValueError when it left no result.
    """
    child = Command(
        argv=(sys.executable, "-m", "benchmarks.child", str(result), *command.argv),
        folder=command.folder,
        environment=command.environment,
    )
    result.parent.mkdir(parents=True, exist_ok=True)
    result.unlink(missing_ok=True)
    outcome = run(child, lambda line: print(f"    {line}", flush=True))
    if not result.is_file():
        raise ValueError(f"{command} left no result: {outcome.last_lines()}")
    return Usage(**json.loads(result.read_text(encoding="utf-8")))


def main(arguments: list[str]) -> int:
    """The child."""
    processes = Processes()
    sampler = Sampler(processes)
    sampler.start()
    begin = time.monotonic()
    outcome = processes(Command(argv=tuple(arguments[1:])), print)
    seconds = time.monotonic() - begin
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    taken = Usage(
        code=outcome.code,
        seconds=round(seconds, 2),
        processor_seconds=round(used.ru_utime + used.ru_stime, 2),
        peak_mib=round(used.ru_maxrss / 1024, 1),
        peak_sum_mb=round(sampler.peak_bytes / 1e6, 1),
    )
    Path(arguments[0]).write_text(json.dumps(asdict(taken)), encoding="utf-8")
    return outcome.code


class Sampler(threading.Thread):
    """Looks at the memory of whatever a runner runs."""

    def __init__(self, processes: Processes) -> None:
        super().__init__(daemon=True)
        self.peak_bytes = 0
        self._processes = processes

    def run(self) -> None:
        """Samples as long as this process lives."""
        while True:
            with self._processes.lock:
                roots = [process.pid for process in self._processes.live]
            pids = process_trees(roots)
            for _ in range(SAMPLES_A_LOOK if pids else 1):
                self.peak_bytes = max(self.peak_bytes, sum(map(resident_bytes, pids)))
                time.sleep(SAMPLE_SECONDS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
