"""Memory, one queue and its recorded graphs on the GPU, through CUDA's runtime."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from engine_build.errors import NetworkRefused
from engine_build.samples.feed import Array
from engine_build.tensorrt.surface import CudaRuntime

MIB = 2**20
Graph = Any
"""A cudaGraphExec_t."""


class Device:
    """The first GPU; `cuda` is the module cuda.bindings.runtime."""

    def __init__(self, cuda: CudaRuntime) -> None:
        self._cuda = cuda
        self._buffers: dict[str, tuple[int, int]] = {}
        self._answer(cuda.cudaSetDevice(0))
        self._stream = self._answer(cuda.cudaStreamCreate())
        self.stream = int(self._stream)
        """As TensorRT takes it."""

    def used_mib(self) -> float:
        """Memory that is taken on the GPU, by whomever."""
        free, total = self._answer(self._cuda.cudaMemGetInfo())
        return (int(total) - int(free)) / MIB

    def buffer(self, name: str, size: int) -> int:
        """The address of at least `size` bytes that belong to a name; they are kept until more are asked for."""
        address, held = self._buffers.get(name, (0, 0))
        if held >= max(1, size):
            return address
        if held:
            self._answer(self._cuda.cudaFree(address))
            del self._buffers[name]
        address = int(self._answer(self._cuda.cudaMalloc(max(1, size))))
        self._buffers[name] = (address, max(1, size))
        return address

    def send(self, name: str, values: Array) -> int:
        """Queues a copy to the GPU and tells where it goes; `values` must be contiguous, and stay until `wait`."""
        address = self.buffer(name, values.nbytes)
        kind = self._cuda.cudaMemcpyKind.cudaMemcpyHostToDevice
        self._answer(self._cuda.cudaMemcpyAsync(address, values.ctypes.data, values.nbytes, kind, self._stream))
        return address

    def bring(self, name: str, shape: tuple[int, ...], dtype: Any) -> Array:
        """Queues a copy from the GPU; the values are there after `wait`."""
        values: Array = np.empty(shape, dtype=dtype)
        kind = self._cuda.cudaMemcpyKind.cudaMemcpyDeviceToHost
        address = self.buffer(name, values.nbytes)
        self._answer(self._cuda.cudaMemcpyAsync(values.ctypes.data, address, values.nbytes, kind, self._stream))
        return values

    def recorded(self, queue: Callable[[], bool]) -> Graph | None:
        """What `queue` puts into the queue, as a graph; it does not run. None where that cannot be recorded."""
        mode = self._cuda.cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal
        self._answer(self._cuda.cudaStreamBeginCapture(self._stream, mode))
        done = queue()
        error, graph = self._cuda.cudaStreamEndCapture(self._stream)
        if not done or error != self._cuda.cudaError_t.cudaSuccess:
            self._cuda.cudaGetLastError()
            return None
        ready = self._answer(self._cuda.cudaGraphInstantiate(graph, 0))
        self._answer(self._cuda.cudaGraphDestroy(graph))
        return ready

    def launch(self, graph: Graph) -> None:
        """Queues a recorded graph."""
        self._answer(self._cuda.cudaGraphLaunch(graph, self._stream))

    def forget(self, graph: Graph) -> None:
        """Gives a recorded graph back."""
        self._answer(self._cuda.cudaGraphExecDestroy(graph))

    def wait(self) -> None:
        """Until everything queued is done. Raises NetworkRefused for whatever of it failed."""
        self._answer(self._cuda.cudaStreamSynchronize(self._stream))

    def close(self) -> None:
        """Gives every buffer and the queue back."""
        for address, _ in self._buffers.values():
            self._answer(self._cuda.cudaFree(address))
        self._buffers.clear()
        self._answer(self._cuda.cudaStreamDestroy(self._stream))

    def _answer(self, answer: tuple[Any, ...]) -> Any:
        """What a call answers beside its error code. Raises NetworkRefused in CUDA's own words."""
        error, *values = answer
        if error != self._cuda.cudaError_t.cudaSuccess:
            _, words = self._cuda.cudaGetErrorString(error)
            told = words.decode("utf-8", "replace") if isinstance(words, bytes) else str(error)
            raise NetworkRefused(f"CUDA fails with {told} ({int(error)}); free the GPU, or look into the driver's log.")
        return values[0] if len(values) == 1 else tuple(values)
