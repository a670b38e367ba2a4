"""Memory, one queue and its recorded graphs on the GPU, through CUDA's runtime."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from container.tensorrt.bindings import CudaRuntime
from container.tensorrt.faults import DeviceFault, DeviceOutOfMemory

Array = np.ndarray[Any, Any]
Graph = Any
"""A cudaGraphExec_t."""


class Device:
    """The first GPU; `cuda` is the module cuda.bindings.runtime.

    Every method raises DeviceFault for what fails in CUDA.
    """

    def __init__(self, cuda: CudaRuntime) -> None:
        self._cuda = cuda
        self._buffers: dict[str, tuple[int, int]] = {}
        self._pinned: dict[str, tuple[int, int]] = {}
        self._answer(cuda.cudaSetDevice(0))
        # Not blocking: what anybody queues without a stream would wait for ours, and end a
        # recording.
        self._stream = self._answer(cuda.cudaStreamCreateWithFlags(cuda.cudaStreamNonBlocking))
        self.stream = int(self._stream)
        """As TensorRT takes it."""

    def buffer(self, name: str, size: int) -> int:
        """Return the address of at least `size` bytes of a name, kept until more are needed."""
        return self._block(self._buffers, name, size, self._cuda.cudaMalloc, self._cuda.cudaFree)

    def reserve(self, name: str, size: int) -> tuple[Array, int]:
        """Return `size` bytes of page-locked host memory, and the address of as many on the GPU.

        Kept as `buffer` keeps its own.
        """
        address = self._block(
            self._pinned, name, size, self._cuda.cudaMallocHost, self._cuda.cudaFreeHost
        )
        values: Array = np.frombuffer((ctypes.c_uint8 * size).from_address(address), np.uint8)
        return values, self.buffer(name, size)

    def send(self, name: str, values: Array) -> int:
        """Queue a copy to the GPU and return its address.

        `values` must be contiguous and stay until `wait`.
        """
        address, host = self.buffer(name, values.nbytes), values.ctypes.data
        kind = self._cuda.cudaMemcpyKind.cudaMemcpyHostToDevice
        self._answer(self._cuda.cudaMemcpyAsync(address, host, values.nbytes, kind, self._stream))
        return address

    def bring_into(self, name: str, values: Array) -> None:
        """Queue a copy from the GPU into a contiguous array."""
        address, host = self.buffer(name, values.nbytes), values.ctypes.data
        kind = self._cuda.cudaMemcpyKind.cudaMemcpyDeviceToHost
        self._answer(self._cuda.cudaMemcpyAsync(host, address, values.nbytes, kind, self._stream))

    def record_graph(self, queue: Callable[[], bool]) -> Graph | None:
        """Capture what `queue` enqueues as a CUDA graph, not run; None where it cannot be."""
        mode = self._cuda.cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal
        self._answer(self._cuda.cudaStreamBeginCapture(self._stream, mode))
        try:
            done = queue()
        except DeviceFault:
            done = False
        error, graph = self._cuda.cudaStreamEndCapture(self._stream)
        is_whole = error == self._cuda.cudaError_t.cudaSuccess
        try:
            if done and is_whole:
                return self._answer(self._cuda.cudaGraphInstantiate(graph, 0))
            self._cuda.cudaGetLastError()
            return None
        finally:
            if is_whole:
                self._cuda.cudaGraphDestroy(graph)

    def launch(self, graph: Graph) -> None:
        """Queue a recorded graph."""
        self._answer(self._cuda.cudaGraphLaunch(graph, self._stream))

    def forget(self, graph: Graph) -> None:
        """Free a recorded graph."""
        self._answer(self._cuda.cudaGraphExecDestroy(graph))

    def wait(self) -> None:
        """Wait until the stream is done. Raises DeviceFault for what failed in it."""
        self._answer(self._cuda.cudaStreamSynchronize(self._stream))

    def close(self) -> None:
        """Free every buffer and the queue, all of them even where one fails."""
        frees = [
            *((self._cuda.cudaFree, address) for address, _ in self._buffers.values()),
            *((self._cuda.cudaFreeHost, address) for address, _ in self._pinned.values()),
            (self._cuda.cudaStreamDestroy, self._stream),
        ]
        faults: list[DeviceFault] = []
        for free, handle in frees:
            try:
                self._answer(free(handle))
            except DeviceFault as fault:
                faults.append(fault)
        self._buffers.clear()
        self._pinned.clear()
        if faults:
            raise faults[-1]

    def _block(
        self,
        blocks: dict[str, tuple[int, int]],
        name: str,
        size: int,
        take: Callable[[int], tuple[Any, int]],
        give: Callable[[int], tuple[Any]],
    ) -> int:
        address, held = blocks.get(name, (0, 0))
        if held >= max(1, size):
            return address
        if held:
            self._answer(give(address))
            del blocks[name]
        address = int(self._answer(take(max(1, size))))
        blocks[name] = (address, max(1, size))
        return address

    def _answer(self, answer: tuple[Any, ...]) -> Any:
        """Return a call's values. Raises DeviceFault with CUDA's message for an error code."""
        error, *values = answer
        if error != self._cuda.cudaError_t.cudaSuccess:
            _, words = self._cuda.cudaGetErrorString(error)
            listed = words.decode("utf-8", "replace") if isinstance(words, bytes) else str(error)
            is_memory = error == self._cuda.cudaError_t.cudaErrorMemoryAllocation
            raise (DeviceOutOfMemory if is_memory else DeviceFault)(
                f"CUDA fails with {listed} ({int(error)}); free the GPU, or look into the "
                "driver's log."
            )
        return values[0] if len(values) == 1 else tuple(values)
