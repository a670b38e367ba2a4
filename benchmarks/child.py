"""`python -m benchmarks.child RESULT PROGRAM ARGUMENT…`: run a program, write its usage as JSON.

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
SAMPLE_SECONDS = 0.01
SAMPLES_A_LOOK = 20
"""Samples between two looks for new processes, which cost more."""


def process_trees(roots: Iterable[int]) -> tuple[int, ...]:
    """Return these processes and everything that they started."""
    children: dict[int, list[int]] = defaultdict(list)
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and (fields := stat_fields(int(entry.name))):
            children[int(fields[1])].append(int(entry.name))
    pids = list(roots)
    for pid in pids:
        pids.extend(children[pid])
    return tuple(pids)


def stat_fields(pid: int) -> list[bytes]:
    """Return the fields of /proc/PID/stat after the program's name; none once it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return []


def resident_bytes(pid: int) -> int:
    """Return a process's resident memory; 0 once it has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES
    except (OSError, IndexError):
        return 0


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Time and memory of a program and of all its processes."""

    seconds: float
    processor_seconds: float
    """User and system time."""
    peak_mib: float
    """Of its largest process."""
    peak_sum_mb: float
    """Of all its processes together, sampled; pages that they share count for each."""


def measure_usage(command: Command, result: Path, run: Processes) -> Usage:
    """Run a program to its end below a fresh process of this module.

    Raises ValueError when it fails.
    """
    child = Command(
        argv=(sys.executable, "-m", "benchmarks.child", str(result), *command.argv),
        folder=command.folder,
        environment=command.environment,
    )
    result.parent.mkdir(parents=True, exist_ok=True)
    outcome = run(child, lambda line: print(f"    {line}", flush=True))
    if outcome.code != 0:
        raise ValueError(f"{command} ended with code {outcome.code}: {outcome.last_lines()}")
    return Usage(**json.loads(result.read_text(encoding="utf-8")))


def main(arguments: list[str]) -> int:
    """Run the program below this process, and return its exit code."""
    processes, peak_bytes = Processes(), 0

    def sample() -> None:
        nonlocal peak_bytes
        while True:
            with processes.lock:
                roots = [process.pid for process in processes.live]
            pids = process_trees(roots)
            for _ in range(SAMPLES_A_LOOK if pids else 1):
                peak_bytes = max(peak_bytes, sum(map(resident_bytes, pids)))
                time.sleep(SAMPLE_SECONDS)

    threading.Thread(target=sample, daemon=True).start()
    begin = time.monotonic()
    outcome = processes(Command(argv=tuple(arguments[1:])), print)
    seconds = time.monotonic() - begin
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    usage = Usage(
        seconds=round(seconds, 2),
        processor_seconds=round(used.ru_utime + used.ru_stime, 2),
        peak_mib=round(used.ru_maxrss / 1024, 1),
        peak_sum_mb=round(peak_bytes / 1e6, 1),
    )
    Path(arguments[0]).write_text(json.dumps(asdict(usage)), encoding="utf-8")
    return outcome.code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
