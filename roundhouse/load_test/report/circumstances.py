"""What a report says of the machine and the moment, without the machine's name."""

from __future__ import annotations

import datetime
import os
import platform
from pathlib import Path

from roundhouse.load_test.report.result import Circumstances

CPU_FILE = Path("/proc/cpuinfo")


def circumstances() -> Circumstances:
    """Here and now."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return Circumstances(
        machine=f"{_processor()}, {cores()} cores, {memory:.0f} GiB",
        date=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        python=platform.python_version(),
    )


def cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _processor() -> str:
    lines = CPU_FILE.read_text(encoding="utf-8").splitlines() if CPU_FILE.is_file() else []
    found = platform.processor() or platform.machine()
    return next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), found
    )
