"""Load time and memory of an engine, in this process or in one of its own.

`python -m engine_build.evaluation.footprint ENGINE FEED` prints one JSON line; FEED is an .npz file
with every input.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from engine_build.datasets.dataset import Feed, save_arrays
from engine_build.errors import NetworkRefused, SourceFault
from engine_build.evaluation.latency import Engine, format_table
from engine_build.evaluation.runtimes import (
    DRIVER,
    Running,
    RuntimeName,
    close,
    import_runtime,
    load_engine,
)
from engine_build.machine import memory_mib
from engine_build.runner import Command, Runner

MIB = 2**20
TIMEOUT_SECONDS = 300
RESERVED, USED = 5, 7
"""CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT and CU_MEMPOOL_ATTR_USED_MEM_CURRENT of CUDA's driver."""
COPIES_BEFORE = (10, 16)
"""TensorRT's release in Triton 26.05; that of 24.11, 10.6, has the backend that copies."""
RunningT = TypeVar("RunningT", bound=Running)


@dataclass(frozen=True, kw_only=True)
class Footprint:
    """What one engine adds to a process and to its GPU.

    Of a plan, time and device memory are those of a second load, as a server of several models has
    taken already what the first one takes for all: TensorRT's own start and CUDA's modules. What
    Triton and the server before it add to a load, 10 to 20 ms, is not in its time.
    """

    load_seconds: float
    host_memory_mib: float
    device_memory_mib: float | None = None


def load_measured(
    load: Callable[[], RunningT],
    feed: Feed,
    *,
    device_mib: Callable[[], float | None] | None = None,
) -> tuple[RunningT, Footprint]:
    """Load something and run it once; memory is exact only in a process that does nothing else."""
    used = device_memory_mib if device_mib is None else device_mib
    device, host, begin = used(), memory_mib("VmRSS"), time.monotonic()
    running = load()
    seconds = time.monotonic() - begin
    running.rows(feed)
    after = used()
    added = None if device is None or after is None else round(max(0.0, after - device), 1)
    return running, Footprint(
        load_seconds=round(seconds, 3),
        host_memory_mib=round(max(0.0, memory_mib("VmRSS") - host), 1),
        device_memory_mib=added,
    )


def measure_in_child(engine: Path, feed: Feed, scratch: Path, runner: Runner) -> Footprint:
    """Load an engine in a child process and run it once. Raises SourceFault."""
    path = scratch / "feed.npz"
    save_arrays(path, feed)
    argv = (sys.executable, "-m", "engine_build.evaluation.footprint", str(engine), str(path))
    ended = runner.run(Command(argv=argv, timeout_seconds=TIMEOUT_SECONDS))
    try:
        return Footprint(**ended.report)
    except TypeError as error:
        raise SourceFault(
            f"the engine {engine.name} does not load in a fresh process (code {ended.code})."
        ) from error


def format_footprints(footprints: Sequence[tuple[Engine, Footprint]]) -> str:
    """Return the load time and memory of each engine, as plain text."""
    rows = [("runtime", "precision", "load s", "host MiB", "device MiB")]
    for engine, footprint in footprints:
        device = footprint.device_memory_mib
        memory = (f"{footprint.host_memory_mib:.0f}", "" if device is None else f"{device:.0f}")
        rows.append((engine.runtime, engine.precision, f"{footprint.load_seconds:.2f}", *memory))
    return format_table(rows)


def device_memory_mib(driver: Any = None) -> float | None:
    """Return the used memory of the first GPU, by its driver; None where there is no GPU.

    The first call makes the device's context, so that no engine's footprint includes it. TensorRT
    takes weights from CUDA's memory pool, which grows by 32 MiB: what this process's pool has in
    reserve counts as free, for the next engine's weights lie there.
    """
    try:
        library: Any = ctypes.CDLL(DRIVER) if driver is None else driver
    except OSError:
        return None
    device, context = ctypes.c_int(0), ctypes.c_void_p()
    free, total = ctypes.c_size_t(0), ctypes.c_size_t(0)
    calls = (
        ("cuInit", (0,)),
        ("cuDeviceGet", (ctypes.byref(device), 0)),
        ("cuDevicePrimaryCtxRetain", (ctypes.byref(context), device)),
        ("cuCtxPushCurrent_v2", (context,)),
        ("cuMemGetInfo_v2", (ctypes.byref(free), ctypes.byref(total))),
        ("cuCtxPopCurrent_v2", (ctypes.byref(context),)),
    )
    if any(getattr(library, name)(*arguments) != 0 for name, arguments in calls):
        return None
    reserve = _pool_reserve_bytes(library, device)
    return round((total.value - free.value - reserve) / MIB, 1)


def _pool_reserve_bytes(library: Any, device: ctypes.c_int) -> int:
    """Return what CUDA's memory pool of this process holds unused; 0 where it has no pool."""
    pool, reserved, used = ctypes.c_void_p(), ctypes.c_uint64(0), ctypes.c_uint64(0)
    calls = (
        ("cuDeviceGetMemPool", (ctypes.byref(pool), device)),
        ("cuMemPoolGetAttribute", (pool, RESERVED, ctypes.byref(reserved))),
        ("cuMemPoolGetAttribute", (pool, USED, ctypes.byref(used))),
    )
    if any(getattr(library, name)(*arguments) != 0 for name, arguments in calls):
        return 0
    return reserved.value - used.value


def read_plan_as_triton(plan: Path, *, copies: bool) -> bytes | bytearray:
    """Read a plan by as many passes over memory as Triton's TensorRT backend.

    They take the longest part of a load: it clears a string of the file's size, reads the file into
    it (backend_common.cc), and `copies` the string (loader.cc before Triton 26.01).
    """
    content = bytearray(plan.stat().st_size)
    with plan.open("rb") as file:
        file.readinto(content)
    return bytes(content) if copies else content


def _load_plan_as_triton(plan: Path) -> Running:
    """Load a plan by the steps of Triton's TensorRT backend, warm-up and CUDA graph included.

    Raises InputRefused and NetworkRefused.
    """
    from engine_build.tensorrt.network import installed_bindings, load_plan

    version = tuple(map(int, installed_bindings()[0].__version__.split(".")[:2]))
    read = partial(read_plan_as_triton, copies=version < COPIES_BEFORE)
    network = load_plan(plan, host_code=True, read=read)
    network.warm_up()
    return network


def measure_plan(
    load: Callable[[], Running],
    feed: Feed,
    *,
    device_mib: Callable[[], float | None] | None = None,
) -> Footprint:
    """Load a plan twice; the first load counts for host memory, and where two do not fit.

    Prints the first load's footprint. Raises NetworkRefused.
    """
    first, footprint = load_measured(load, feed, device_mib=device_mib)
    print(json.dumps(asdict(footprint)))
    try:
        _, second = load_measured(load, feed, device_mib=device_mib)
    except NetworkRefused:
        return footprint
    finally:
        close(first)
    return replace(second, host_memory_mib=footprint.host_memory_mib)


def main(arguments: Sequence[str]) -> int:
    """Measure in this process, the child."""
    engine, path = Path(arguments[0]), arguments[1]
    with np.load(path, allow_pickle=False) as file:
        feed = dict(file)
    runtimes: dict[str, RuntimeName] = {".plan": "tensorrt", ".pt2": "pytorch"}
    runtime = runtimes.get(engine.suffix, "onnxruntime")
    import_runtime(runtime)
    if runtime == "tensorrt":
        footprint = measure_plan(partial(_load_plan_as_triton, engine), feed)
    else:
        _, footprint = load_measured(partial(load_engine, runtime, engine, as_served=False), feed)
    print(json.dumps(asdict(footprint)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
