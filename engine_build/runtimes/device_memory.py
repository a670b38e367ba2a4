"""Memory of the first GPU, as its driver counts it: the same for every runtime."""

from __future__ import annotations

import ctypes
from typing import Any

from engine_build.runtimes.availability import DRIVER

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
