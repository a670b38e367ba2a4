"""TensorRT's and CUDA's Python bindings on this machine, and a logger that keeps errors."""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from container.tensorrt.faults import NoBindings, PlanRefused

TensorRT = Any
"""The module `tensorrt`."""
CudaRuntime = Any
"""The module `cuda.bindings.runtime`: every call answers a tuple, how it ended first."""
ExecutionContext = Any
"""An IExecutionContext."""
KEPT_ERRORS = 100
"""A server lives for months, so only the latest are kept."""
_LOGGERS: WeakKeyDictionary[TensorRT, Any] = WeakKeyDictionary()
"""By module: a TensorRT library keeps the first logger that it is given, and never lets it go."""


def tensorrt() -> Any:
    """Import `tensorrt`, or else the wheel that has its bindings alone. Raises ImportError."""
    try:
        return importlib.import_module("tensorrt")
    except ImportError:
        return importlib.import_module("tensorrt_bindings")


def cuda_runtime() -> Any:
    """Import `cuda.bindings.runtime`. Raises ImportError."""
    return importlib.import_module("cuda.bindings.runtime")


def bindings() -> tuple[Any, Any]:
    """Return TensorRT's and CUDA's modules. Raises NoBindings, which names what is missing."""
    try:
        return tensorrt(), cuda_runtime()
    except ModuleNotFoundError as error:
        raise NoBindings(str(error.name)) from error
    except (ImportError, OSError) as error:
        raise NoBindings(" ".join(str(error).split())) from error


def load_plugins(libraries: Iterable[Path]) -> None:
    """Load libraries that register custom operators, TensorRT's own being loaded.

    They stay loaded, as `dlopen` keeps them. Raises PlanRefused.
    """
    for library in libraries:
        try:
            ctypes.CDLL(str(library))
        except OSError as error:
            reason = " ".join(str(error).split())
            raise PlanRefused(f"plugin {library.name} cannot be loaded ({reason}).") from error


def error_logger(trt: TensorRT) -> Any:
    """Return this process's `ILogger` with `errors`, one line each, the latest last; now none."""
    if trt not in _LOGGERS:
        _LOGGERS[trt] = _new_logger(trt)
    logger = _LOGGERS[trt]
    logger.errors.clear()
    return logger


def _new_logger(trt: TensorRT) -> Any:
    base: Any = trt.ILogger
    error = trt.ILogger.Severity.ERROR

    class ErrorLogger(base):  # type: ignore[misc]
        def __init__(self) -> None:
            # Not super(): without the base's own constructor the binding crashes.
            base.__init__(self)
            self.errors: list[str] = []

        def log(self, severity: Any, message: str) -> None:
            """Keep errors only; TensorRT calls this."""
            if severity <= error:
                self.errors.append(" ".join(message.split()))
                del self.errors[:-KEPT_ERRORS]

    return ErrorLogger()
