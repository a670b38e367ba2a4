"""The first GPU of this machine, as its driver describes it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

DRIVER = "libcuda.so.1"
MAJOR, MINOR = 75, 76
"""CUdevice_attribute: COMPUTE_CAPABILITY_MAJOR and _MINOR, cuda.h."""
NAME_BYTES = 256


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """What engines are made for."""

    name: str
    compute_capability: str


def first_gpu(load: Callable[[str], Any] = ctypes.CDLL) -> Gpu | None:
    """None where there is no driver, or no GPU that it can use.

    Makes no context, so it takes no memory.
    """
    try:
        driver = load(DRIVER)
    except OSError:
        return None
    device, name = ctypes.c_int(), ctypes.create_string_buffer(NAME_BYTES)
    if (
        driver.cuInit(0)
        or driver.cuDeviceGet(ctypes.byref(device), 0)
        or driver.cuDeviceGetName(name, NAME_BYTES, device)
    ):
        return None
    numbers = ctypes.c_int(), ctypes.c_int()
    for number, attribute in zip(numbers, (MAJOR, MINOR), strict=True):
        if driver.cuDeviceGetAttribute(ctypes.byref(number), attribute, device):
            return None
    return Gpu(
        name=name.value.decode("utf-8", "replace"),
        compute_capability=".".join(str(number.value) for number in numbers),
    )
