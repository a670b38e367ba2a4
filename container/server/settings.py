"""The process environment of the Python server, read once and refused when it holds a typo."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PREFIX = "ROUNDHOUSE_"


class SettingsFault(Exception):
    """Variables cannot be used; the message has a sentence for each, a line apart."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of the server.

    Sizes are in bytes, times in seconds; `None` is derived from the engine or the machine.
    """

    model_dir: Path = Path("/opt/ml/model")
    address: str = "0.0.0.0"
    port: int = 8080
    multi_model: bool = False
    """SageMaker's multi-model mode: it starts empty, and requests load models."""
    manifest_sha256: str | None = None
    max_body_bytes: int = 6_291_456
    """InvokeEndpoint's own limit."""
    max_request_rows: int = 1024
    max_connections: int = 4096
    """Of each HTTP process, as file descriptors are."""
    queue_rows: int = 4096
    max_batch_tokens: int | None = None
    slots: int | None = None
    """Batches that run at once."""
    threads: int | None = None
    """Of each slot, in engines that run on the CPU."""
    http_processes: int = 1
    """1: HTTP in the engine's own process; more.

    That many processes before the one that owns the engine.
    """
    deadline_seconds: int = 60
    """Longest that a request may take; SageMaker's own limit."""
    request_seconds: int = 30
    """Longest that a request may take to arrive."""
    drain_seconds: int = 25
    """SageMaker kills 30 seconds after SIGTERM."""


_COUNTS = {
    "SAGEMAKER_BIND_TO_PORT": "port",
    "ROUNDHOUSE_MAX_BODY_BYTES": "max_body_bytes",
    "ROUNDHOUSE_MAX_REQUEST_ROWS": "max_request_rows",
    "ROUNDHOUSE_MAX_CONNECTIONS": "max_connections",
    "ROUNDHOUSE_QUEUE_ROWS": "queue_rows",
    "ROUNDHOUSE_MAX_BATCH_TOKENS": "max_batch_tokens",
    "ROUNDHOUSE_SLOTS": "slots",
    "ROUNDHOUSE_THREADS": "threads",
    "ROUNDHOUSE_HTTP_PROCESSES": "http_processes",
    "ROUNDHOUSE_DEADLINE_SECONDS": "deadline_seconds",
    "ROUNDHOUSE_REQUEST_SECONDS": "request_seconds",
    "ROUNDHOUSE_DRAIN_SECONDS": "drain_seconds",
}
_MOST = {
    "SAGEMAKER_BIND_TO_PORT": 65_535,
    "ROUNDHOUSE_SLOTS": 256,
    "ROUNDHOUSE_THREADS": 256,
    "ROUNDHOUSE_HTTP_PROCESSES": 64,
    "ROUNDHOUSE_DEADLINE_SECONDS": 86_400,
    "ROUNDHOUSE_REQUEST_SECONDS": 86_400,
    "ROUNDHOUSE_DRAIN_SECONDS": 86_400,
}
"""Where more is a slip: other counts only take memory that is used."""
LARGEST_COUNT = 2**31 - 1
_WORDS = {
    "SM_MODEL_DIR": "model_dir",
    "ROUNDHOUSE_BIND_ADDRESS": "address",
    "ROUNDHOUSE_MANIFEST_SHA256": "manifest_sha256",
}
VARIABLES = (*_WORDS, "SAGEMAKER_MULTI_MODEL", *_COUNTS)
"""Every variable that the server reads."""


def read_settings(environ: Mapping[str, str]) -> Settings:
    """The settings in an environment; an empty variable means default.

    Raises SettingsFault with a line for every fault.
    """
    known = {name for name in (*_COUNTS, *_WORDS) if name.startswith(PREFIX)}
    unknown = [name for name in sorted(environ) if name.startswith(PREFIX) and name not in known]
    faults = [
        f"{name} is not a setting of this server; {_nearest(name, known)}" for name in unknown
    ]
    values: dict[str, object] = {
        field: environ[name] for name, field in _WORDS.items() if environ.get(name)
    }
    for name, field in _COUNTS.items():
        if environ.get(name):
            values[field], fault = _count(name, environ[name])
            faults += fault
    values["multi_model"], fault = _switch("SAGEMAKER_MULTI_MODEL", environ)
    if "model_dir" in values:
        values["model_dir"] = Path(str(values["model_dir"]))
    sound: dict[str, Any] = {field: value for field, value in values.items() if value is not None}
    settings = Settings(**sound)
    wrong = values.keys() - sound.keys()
    faults += [*fault, *_contradictions(settings, wrong)]
    if faults:
        raise SettingsFault("\n".join(faults))
    return settings


def bind_address(settings: Settings) -> str:
    """Return address and port as messages show them."""
    address = f"[{settings.address}]" if ":" in settings.address else settings.address
    return f"{address}:{settings.port}"


def process_settings() -> Settings:
    """The settings of this process."""
    return read_settings(os.environ)


def process_environment() -> dict[str, str]:
    """This process' environment, for processes that it starts."""
    return dict(os.environ)


def limit_libraries() -> None:
    """Set variables that make imports cheaper; variables that are set already stay.

    numpy starts a thread per core to multiply matrices, which this server never does; pydantic
    searches every installed package for plugins. Together 47 ms of a start's 350.
    """
    for name, value in {"OPENBLAS_NUM_THREADS": "1", "PYDANTIC_DISABLE_PLUGINS": "__all__"}.items():
        os.environ.setdefault(name, value)


def available_cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0))


def _nearest(name: str, known: set[str]) -> str:
    near = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.6)
    return f"did you mean {near[0]}?" if near else f"known are {', '.join(sorted(known))}."


def _contradictions(settings: Settings, wrong: Set[str]) -> list[str]:
    """Return the faults of settings that contradict each other; those in `wrong` are left out."""
    faults = []
    if settings.max_request_rows > settings.queue_rows and not wrong & {
        "max_request_rows",
        "queue_rows",
    }:
        faults.append(
            f"ROUNDHOUSE_MAX_REQUEST_ROWS is {settings.max_request_rows}, "
            f"more than ROUNDHOUSE_QUEUE_ROWS {settings.queue_rows}; raise the queue, or lower "
            "the request."
        )
    if settings.multi_model and settings.http_processes > 1:
        faults.append(
            f"ROUNDHOUSE_HTTP_PROCESSES is {settings.http_processes}, but a multi-model server "
            "has one process; leave it unset."
        )
    if settings.multi_model and settings.manifest_sha256 is not None:
        faults.append(
            "ROUNDHOUSE_MANIFEST_SHA256 pins one archive, but a multi-model server loads those "
            "that requests name, each under "
            "a name that follows from its content; leave it unset."
        )
    return faults


def _switch(name: str, environ: Mapping[str, str]) -> tuple[bool, list[str]]:
    """Return the value of a boolean variable, and its faults."""
    text = environ.get(name, "").lower()
    wrong = text not in ("", "true", "false")
    return text == "true", [
        f"{name} is {environ[name][:40]!r}; it must be true, false or unset."
    ] if wrong else []


def _count(name: str, text: str) -> tuple[int | None, list[str]]:
    """Return the value of a number, `None` when it is faulty, and its faults."""
    most = _MOST.get(name, LARGEST_COUNT)
    if text.isascii() and text.isdigit() and len(text) <= 10 and 1 <= int(text) <= most:
        return int(text), []
    return None, [
        f"{name} is {text[:40]!r}; it must be a whole number from 1 to {most}, or unset for the "
        "default."
    ]
