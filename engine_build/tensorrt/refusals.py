"""The GPU's faults as the build's own, and the bindings that judging a plan needs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from container.tensorrt.bindings import bindings
from container.tensorrt.faults import DeviceFault, NoBindings
from engine_build.errors import InputRefused, NetworkRefused


@contextmanager
def faults_refuse_the_network() -> Iterator[None]:
    """Raises NetworkRefused for a DeviceFault, in the same words."""
    try:
        yield
    except DeviceFault as fault:
        raise NetworkRefused(str(fault)) from fault


def installed_bindings() -> tuple[Any, Any]:
    """TensorRT's and CUDA's modules.

    Raises InputRefused where plans could be compiled, and not judged.
    """
    try:
        return bindings()
    except NoBindings as fault:
        raise InputRefused(
            f"plans cannot be judged on this machine, whose Python has no {fault.module}; build in the GPU builder image."
        ) from fault
