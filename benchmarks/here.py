"""This machine, today: what every benchmark is told with."""

from __future__ import annotations

import datetime
import os
from pathlib import Path

from benchmarks.measure import Circumstances


def circumstances() -> Circumstances:
    """This machine, today."""
    return Circumstances(
        machine=machine(), date=datetime.datetime.now(datetime.UTC).date().isoformat()
    )


def machine() -> str:
    """Processor, cores and memory, without the machine's name."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    processor = next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")),
        "unknown processor",
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{processor}, {len(os.sched_getaffinity(0))} cores, {memory:.0f} GiB"
