"""Memory of the first GPU, as its driver counts it: the same for every runtime.

What it takes to hold a runtime's engine: seconds until it could answer, and the memory it had
taken once it did.

How long an engine takes to load and how much memory it needs, measured in a process of its own.

`python -m engine_build.evaluation.footprint ENGINE FEED` prints one JSON line; FEED is an .npz file
with every input.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from engine_build.datasets.feed import Feed
from engine_build.errors import SourceFault
from engine_build.evaluation.runtimes import DRIVER, Running, RuntimeName, import_runtime, opened
from engine_build.machine import resident_mib
from engine_build.runner import Command, Runner

MIB = 2**20


def used_mib(driver: Any = None) -> float | None:
    """What everybody on the GPU uses; None where there is no GPU.

    The first call makes the device's context, so that what a context takes is counted to nobody.
    """
    try:
        library: Any = ctypes.CDLL(DRIVER) if driver is None else driver
    except OSError:
        return None
    device, context = ctypes.c_int(0), ctypes.c_void_p()
    free, total = ctypes.c_size_t(0), ctypes.c_size_t(0)
    steps = (
        ("cuInit", (0,)),
        ("cuDeviceGet", (ctypes.byref(device), 0)),
        ("cuDevicePrimaryCtxRetain", (ctypes.byref(context), device)),
        ("cuCtxPushCurrent_v2", (context,)),
        ("cuMemGetInfo_v2", (ctypes.byref(free), ctypes.byref(total))),
        ("cuCtxPopCurrent_v2", (ctypes.byref(context),)),
    )
    if any(getattr(library, name)(*arguments) != 0 for name, arguments in steps):
        return None
    return round((total.value - free.value) / MIB, 1)


Kind = TypeVar("Kind", bound=Running)


@dataclass(frozen=True, kw_only=True)
class Holding:
    """What one engine added to a process and to its GPU."""

    load_seconds: float
    host_memory_mib: float
    device_memory_mib: float | None = None


def held(
    load: Callable[[], Kind], feed: Feed, *, device_mib: Callable[[], float | None] = used_mib
) -> tuple[Kind, Holding]:
    """Loads something and runs it once.

    Memory is exact only in a process that does nothing else.
    """
    device, host, begin = device_mib(), resident_mib(), time.monotonic()
    running = load()
    seconds = time.monotonic() - begin
    running.rows(feed)
    after = device_mib()
    return running, Holding(
        load_seconds=round(seconds, 3),
        host_memory_mib=round(max(0.0, resident_mib() - host), 1),
        device_memory_mib=None
        if device is None or after is None
        else round(max(0.0, after - device), 1),
    )


TIMEOUT_SECONDS = 300


def loading(engine: Path, feed: Feed, scratch: Path, runner: Runner) -> Holding:
    """Loads an engine in a child process and runs it once. Raises SourceFault."""
    path = scratch / "feed.npz"
    np.savez(path, **feed)  # type: ignore[arg-type]
    argv = (sys.executable, "-m", "engine_build.evaluation.footprint", str(engine), str(path))
    ended = runner.run(Command(argv=argv, timeout_seconds=TIMEOUT_SECONDS))
    try:
        return Holding(**json.loads(ended.output.strip().splitlines()[-1]))
    except (IndexError, TypeError, ValueError) as error:
        raise SourceFault(
            f"the engine {engine.name} does not load in a fresh process (code {ended.code})."
        ) from error


def main(arguments: Sequence[str]) -> int:
    """The child."""
    engine, path = Path(arguments[0]), arguments[1]
    with np.load(path, allow_pickle=False) as file:
        feed = dict(file)
    runtime: RuntimeName = "tensorrt" if engine.suffix == ".plan" else "onnxruntime"
    import_runtime(runtime)
    _, holding = held(partial(opened, runtime, engine, as_served=False), feed)
    print(json.dumps(asdict(holding)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
