"""TensorRT's and CUDA's Python bindings on this machine.

A logger that keeps what TensorRT complains of.
"""

from __future__ import annotations

import importlib
from typing import Any, Protocol

from container.tensorrt.faults import NoBindings

KEPT_ERRORS = 100
"""A server lives for months, so only the latest are kept."""


def tensorrt() -> Any:
    """`tensorrt` of a full installation, or else of the wheel that has the bindings alone.

    Raises ImportError.
    """
    try:
        return importlib.import_module("tensorrt")
    except ImportError:
        return importlib.import_module("tensorrt_bindings")


def cuda_runtime() -> Any:
    """`cuda.bindings.runtime`. Raises ImportError."""
    return importlib.import_module("cuda.bindings.runtime")


def bindings() -> tuple[Any, Any]:
    """TensorRT's and CUDA's modules.

    Raises NoBindings, which names the one, or its library, that is missing.
    """
    try:
        return tensorrt(), cuda_runtime()
    except ModuleNotFoundError as error:
        raise NoBindings(str(error.name)) from error
    except (ImportError, OSError) as error:
        raise NoBindings(" ".join(str(error).split())) from error


class LoggerModule(Protocol):
    """The module `tensorrt`, as far as loggers go."""

    ILogger: Any


def error_logger(trt: LoggerModule) -> Any:
    """An `ILogger` with `errors`, one line each, the latest last."""

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
                del self.errors[:-KEPT_ERRORS]

    return ErrorLogger()
