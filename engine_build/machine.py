"""The machine that builds, described without naming it."""

from __future__ import annotations

import ctypes
import gc
import os
import platform
from pathlib import Path
from typing import Literal


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def description() -> str:
    """Processor, cores and memory: "Intel(R) Xeon(R) Processor @ 2.50GHz, 2 cores, 23 GiB"."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return f"{next(names, platform.machine())}, {cores()} cores, {memory:.0f} GiB"


def memory_mib(field: Literal["VmRSS", "VmHWM"]) -> float:
    """Memory of this process: what it has now, VmRSS, or the most that it ever had, VmHWM."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{field}:"))


def return_memory() -> None:
    """Give back what this process freed and glibc keeps: gigabytes after a large export."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
