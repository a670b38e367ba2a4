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

    def set_optimization_profile_async(self, profile_index: int, stream_handle: int) -> bool: ...
    def set_device_memory(self, memory: int, size: int) -> None: ...
    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool: ...
    def infer_shapes(self) -> Sequence[str]: ...
    def get_tensor_shape(self, name: str) -> Sequence[int]: ...
    def set_tensor_address(self, name: str, memory: int) -> bool: ...
    def execute_async_v3(self, stream_handle: int) -> bool: ...


class ICudaEngine(Protocol):
    """A plan, loaded."""

    num_io_tensors: int
    num_optimization_profiles: int
    device_memory_size_v2: int

    def get_tensor_name(self, index: int) -> str: ...
    def get_tensor_mode(self, name: str) -> Any: ...
    def get_tensor_location(self, name: str) -> Any: ...
    def get_tensor_dtype(self, name: str) -> Any: ...
    def get_tensor_profile_shape(
        self, name: str, profile_index: int
    ) -> Sequence[Sequence[int]]: ...
    def create_execution_context(self, strategy: Any = ...) -> IExecutionContext | None: ...


class Runtime(Protocol):
    """Loads plans."""

    engine_host_code_allowed: bool

    def deserialize_cuda_engine(self, serialized_engine: bytes) -> ICudaEngine | None: ...


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

    def nptype(self, trt_type: Any) -> Any: ...
    def init_libnvinfer_plugins(self, logger: Any, namespace: str) -> bool: ...


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

    def cudaSetDevice(self, device: int) -> tuple[Any]: ...
    def cudaStreamCreateWithFlags(self, flags: int) -> tuple[Any, Stream]: ...
    def cudaStreamSynchronize(self, stream: Stream) -> tuple[Any]: ...
    def cudaStreamDestroy(self, stream: Stream) -> tuple[Any]: ...
    def cudaMemGetInfo(self) -> tuple[Any, int, int]: ...
    def cudaMalloc(self, size: int) -> tuple[Any, int]: ...
    def cudaFree(self, devPtr: int) -> tuple[Any]: ...
    def cudaMallocHost(self, size: int) -> tuple[Any, int]: ...
    def cudaFreeHost(self, ptr: int) -> tuple[Any]: ...
    def cudaMemcpyAsync(
        self, dst: int, src: int, count: int, kind: Any, stream: Stream
    ) -> tuple[Any]: ...
    def cudaStreamBeginCapture(self, stream: Stream, mode: Any) -> tuple[Any]: ...
    def cudaStreamEndCapture(self, stream: Stream) -> tuple[Any, Any]: ...
    def cudaGraphInstantiate(self, graph: Any, flags: int) -> tuple[Any, Any]: ...
    def cudaGraphLaunch(self, graphExec: Any, stream: Stream) -> tuple[Any]: ...
    def cudaGraphDestroy(self, graph: Any) -> tuple[Any]: ...
    def cudaGraphExecDestroy(self, graphExec: Any) -> tuple[Any]: ...
    def cudaGetLastError(self) -> tuple[Any]: ...
    def cudaGetErrorString(self, error: Any) -> tuple[Any, bytes]: ...
