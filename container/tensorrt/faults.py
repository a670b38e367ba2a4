"""Faults of CUDA and TensorRT; each message is one sentence in their own words.

DeviceFault
+-- DeviceOutOfMemory  it does not fit the GPU's memory, or the host's page-locked one
+-- PlanRefused        TensorRT does not load or run the plan
+-- NoBindings         this Python lacks TensorRT's or CUDA's bindings
"""

from __future__ import annotations

SHORT_OF_MEMORY = (
    *("out of memory", "outofmemory", "out_of_memory", "insufficient memory", "bad_alloc"),
    *("failed to allocate memory", "cannot allocate memory", "pthread_create failed"),
    *("allocation failed", "could not be allocated"),
    *("can't start new thread", "can't allocate lock", "threadpoolbuilderror"),
)
"""In any case: what TensorRT logs when it answers None, what ONNX Runtime and the C++ library say.

Threads of ONNX Runtime, Python and the tokenizer need memory for their stacks, and a control group
may allow no more of them.
"""


def mentions_memory_shortage(words: str) -> bool:
    """True when a runtime's message is about too little memory."""
    return any(phrase in words.lower() for phrase in SHORT_OF_MEMORY)


class DeviceFault(Exception):
    """CUDA or TensorRT fails."""


class DeviceOutOfMemory(DeviceFault):
    """Memory is short."""


class PlanRefused(DeviceFault):
    """The plan does not load, or does not run at these shapes."""


class NoBindings(DeviceFault):
    """A module is not installed, or lacks a library."""

    def __init__(self, module: str) -> None:
        super().__init__(f"this Python has no {module}")
        self.module = module
