"""TensorRT's and CUDA's Python bindings on this machine, and a logger that keeps what TensorRT complains of."""

from __future__ import annotations

import importlib
from typing import Any, Protocol

from engine_build.errors import InputRefused


def tensorrt() -> Any:
    """`tensorrt` of a full installation, or else of the wheel that has the bindings alone. Raises ImportError."""
    try:
        return importlib.import_module("tensorrt")
    except ImportError:
        return importlib.import_module("tensorrt_bindings")


def cuda_runtime() -> Any:
    """`cuda.bindings.runtime`. Raises ImportError."""
    return importlib.import_module("cuda.bindings.runtime")


def check_bindings() -> None:
    """Raises InputRefused where plans could be compiled, and not judged."""
    try:
        tensorrt()
        cuda_runtime()
    except ImportError as error:
        raise InputRefused(
            f"plans cannot be judged on this machine, whose Python has no {error.name}; build in the GPU builder image."
        ) from error


class LoggerModule(Protocol):
    """The module `tensorrt`, as far as loggers go."""

    ILogger: Any


def error_logger(trt: LoggerModule) -> Any:
    """An `ILogger` with `errors`, one line each."""

    class ErrorLogger(trt.ILogger):  # type: ignore[name-defined, misc]
        """TensorRT calls `log`."""

        def __init__(self) -> None:
            # Not super(): without the base's own constructor the binding crashes.
            trt.ILogger.__init__(self)
            self.errors: list[str] = []

        def log(self, severity: Any, message: str) -> None:
            """Keeps errors, and forgets the rest."""
            if severity <= trt.ILogger.Severity.ERROR:
                self.errors.append(" ".join(message.split()))

    return ErrorLogger()
