"""The part of TensorRT's runtime and of CUDA's that running a plan touches, and nothing beyond.

Mypy refuses any other name. Each protocol is called as the real class is; tests/bindings proves
that the real bindings of 10.16 and of 11.4 have every name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

Stream = Any
"""A cudaStream_t; TensorRT takes it as an integer."""


class IExecutionContext(Protocol):
    """One plan at work."""

    def set_optimization_profile_async(self, profile_index: int, stream_handle: int) -> bool:
        """Chooses the sizes it is ready for."""
        ...

    def set_device_memory(self, memory: int, size: int) -> None:
        """Gives a user-managed context the scratch memory of its runs.

        Others use in between.
        """
        ...

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        """The sizes of one input."""
        ...

    def infer_shapes(self) -> Sequence[str]:
        """Inputs that still miss something."""
        ...

    def get_tensor_shape(self, name: str) -> Sequence[int]:
        """The sizes of one tensor; -1 where they follow from the values alone."""
        ...

    def set_tensor_address(self, name: str, memory: int) -> bool:
        """Where a tensor lies on the device."""
        ...

    def execute_async_v3(self, stream_handle: int) -> bool:
        """Queues one run."""
        ...


class ICudaEngine(Protocol):
    """A plan, loaded."""

    num_io_tensors: int
    num_optimization_profiles: int
    device_memory_size_v2: int

    def get_tensor_name(self, index: int) -> str:
        """An input or output, in the plan's order."""
        ...

    def get_tensor_mode(self, name: str) -> Any:
        """Input or output."""
        ...

    def get_tensor_location(self, name: str) -> Any:
        """Where its address must lead: to the device, or to the host."""
        ...

    def get_tensor_dtype(self, name: str) -> Any:
        """Its type."""
        ...

    def get_tensor_profile_shape(self, name: str, profile_index: int) -> Sequence[Sequence[int]]:
        """(min, opt, max) sizes of an input."""
        ...

    def create_execution_context(self, strategy: Any = ...) -> IExecutionContext | None:
        """Takes the device memory that a run needs.

        Unless the strategy leaves that to the caller.
        """
        ...


class Runtime(Protocol):
    """Loads plans."""

    engine_host_code_allowed: bool

    def deserialize_cuda_engine(self, serialized_engine: bytes) -> ICudaEngine | None:
        """None when the plan is not of this TensorRT, or not for this GPU."""
        ...


class TensorIOMode(Protocol):
    """What a tensor is to a plan."""

    INPUT: Any


class TensorLocation(Protocol):
    """Where a tensor lies."""

    HOST: Any


class ExecutionContextAllocationStrategy(Protocol):
    """Who takes the device memory of a context's runs."""

    USER_MANAGED: Any


class TensorRT(Protocol):
    """The module `tensorrt`."""

    __version__: str
    ExecutionContextAllocationStrategy: ExecutionContextAllocationStrategy
    ILogger: Any
    Runtime: Callable[[Any], Runtime]
    TensorIOMode: TensorIOMode
    TensorLocation: TensorLocation

    def nptype(self, trt_type: Any) -> Any:
        """The numpy type of a TensorRT type. Raises TypeError where numpy has none."""
        ...


class cudaMemcpyKind(Protocol):
    """Which way a copy goes."""

    cudaMemcpyHostToDevice: Any
    cudaMemcpyDeviceToHost: Any


class cudaStreamCaptureMode(Protocol):
    """Which other calls a capture forbids."""

    cudaStreamCaptureModeThreadLocal: Any


class CudaRuntime(Protocol):
    """The module `cuda.bindings.runtime`: every call answers a tuple, how it ended first."""

    cudaError_t: Any
    cudaMemcpyKind: cudaMemcpyKind
    cudaStreamCaptureMode: cudaStreamCaptureMode
    cudaStreamNonBlocking: int

    def cudaSetDevice(self, device: int) -> tuple[Any]:
        """Chooses a GPU."""
        ...

    def cudaStreamCreateWithFlags(self, flags: int) -> tuple[Any, Stream]:
        """A queue."""
        ...

    def cudaStreamSynchronize(self, stream: Stream) -> tuple[Any]:
        """Waits for a queue."""
        ...

    def cudaStreamDestroy(self, stream: Stream) -> tuple[Any]:
        """Gives a queue back."""
        ...

    def cudaMemGetInfo(self) -> tuple[Any, int, int]:
        """Bytes (free, in all) on the device."""
        ...

    def cudaMalloc(self, size: int) -> tuple[Any, int]:
        """Device memory."""
        ...

    def cudaFree(self, devPtr: int) -> tuple[Any]:
        """Gives device memory back."""
        ...

    def cudaMallocHost(self, size: int) -> tuple[Any, int]:
        """Host memory that is never paged out, from and to which copies need no other."""
        ...

    def cudaFreeHost(self, ptr: int) -> tuple[Any]:
        """Gives such host memory back."""
        ...

    def cudaMemcpyAsync(
        self, dst: int, src: int, count: int, kind: Any, stream: Stream
    ) -> tuple[Any]:
        """Queues a copy."""
        ...

    def cudaStreamBeginCapture(self, stream: Stream, mode: Any) -> tuple[Any]:
        """What is queued from here on is recorded, and not run."""
        ...

    def cudaStreamEndCapture(self, stream: Stream) -> tuple[Any, Any]:
        """What was recorded: a graph."""
        ...

    def cudaGraphInstantiate(self, graph: Any, flags: int) -> tuple[Any, Any]:
        """A graph, ready to run."""
        ...

    def cudaGraphLaunch(self, graphExec: Any, stream: Stream) -> tuple[Any]:
        """Queues a graph."""
        ...

    def cudaGraphDestroy(self, graph: Any) -> tuple[Any]:
        """Gives a recorded graph back."""
        ...

    def cudaGraphExecDestroy(self, graphExec: Any) -> tuple[Any]:
        """Gives a ready graph back."""
        ...

    def cudaGetLastError(self) -> tuple[Any]:
        """The last error, which is forgotten."""
        ...

    def cudaGetErrorString(self, error: Any) -> tuple[Any, bytes]:
        """An error in words."""
        ...
