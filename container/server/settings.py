"""The process environment of the Python server, read once and refused when it holds a typo."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onboarding.signature import SIGNERS_VARIABLE, PublicKey, SignatureFault, parse_signers

PREFIX = "ROUNDHOUSE_"


class SettingsFault(Exception):
    """Variables cannot be used; the message has a sentence for each, a line apart."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of the server; `None` is derived from the engine or the machine."""

    model_dir: Path = Path("/opt/ml/model")
    address: str = "0.0.0.0"
    port: int = 8080
    multi_model: bool = False
    """SageMaker's multi-model mode: it starts empty, and requests load models."""
    manifest_sha256: str | None = None
    signers: tuple[PublicKey, ...] = ()
    """Whose engines are loaded; none: anybody's."""
    max_body_bytes: int = 6_291_456
    """InvokeEndpoint's own limit."""
    max_request_rows: int = 1024
    max_connections: int = 4096
    queue_rows: int = 4096
    max_batch_tokens: int | None = None
    slots: int | None = None
    """Batches that run at once."""
    threads: int | None = None
    """Of each slot, in engines that run on the CPU."""
    deadline_seconds: int = 60
    """Longest that a request may take; SageMaker's own limit."""
    request_seconds: int = 30
    """Longest that a request may take to arrive."""
    drain_seconds: int = 25
    """SageMaker kills 30 seconds after SIGTERM."""


LARGEST_COUNT = 2**31 - 1
_COUNTS = {
    "SAGEMAKER_BIND_TO_PORT": ("port", 65_535),
    "ROUNDHOUSE_MAX_BODY_BYTES": ("max_body_bytes", LARGEST_COUNT),
    "ROUNDHOUSE_MAX_REQUEST_ROWS": ("max_request_rows", LARGEST_COUNT),
    "ROUNDHOUSE_MAX_CONNECTIONS": ("max_connections", LARGEST_COUNT),
    "ROUNDHOUSE_QUEUE_ROWS": ("queue_rows", LARGEST_COUNT),
    "ROUNDHOUSE_MAX_BATCH_TOKENS": ("max_batch_tokens", LARGEST_COUNT),
    "ROUNDHOUSE_SLOTS": ("slots", 256),
    "ROUNDHOUSE_THREADS": ("threads", 256),
    "ROUNDHOUSE_DEADLINE_SECONDS": ("deadline_seconds", 86_400),
    "ROUNDHOUSE_REQUEST_SECONDS": ("request_seconds", 86_400),
    "ROUNDHOUSE_DRAIN_SECONDS": ("drain_seconds", 86_400),
}
"""Field and largest value by variable; lower limits stand where more is a slip."""
_WORDS = {
    "SM_MODEL_DIR": "model_dir",
    "ROUNDHOUSE_BIND_ADDRESS": "address",
    "ROUNDHOUSE_MANIFEST_SHA256": "manifest_sha256",
}
VARIABLES = (*_WORDS, SIGNERS_VARIABLE, "SAGEMAKER_MULTI_MODEL", *_COUNTS)
"""Every variable that the server reads."""


def read_settings(environ: Mapping[str, str]) -> Settings:
    """Return the settings in an environment; an empty variable means default.

    Raises SettingsFault with a line for every fault.
    """
    known = {name for name in VARIABLES if name.startswith(PREFIX)}
    unknown = [name for name in sorted(environ) if name.startswith(PREFIX) and name not in known]
    faults = [
        f"{name} is not a setting of this server; {_nearest(name, known)}" for name in unknown
    ]
    values: dict[str, Any] = {
        field: environ[name] for name, field in _WORDS.items() if environ.get(name)
    }
    if "model_dir" in values:
        values["model_dir"] = Path(values["model_dir"])
    if environ.get(SIGNERS_VARIABLE):
        try:
            values["signers"] = parse_signers(environ[SIGNERS_VARIABLE])
        except SignatureFault as fault:
            faults.append(f"{SIGNERS_VARIABLE} {fault}; name the keys of `trusted_signers`.")
    wrong = set()
    for name, (field, most) in _COUNTS.items():
        text = environ.get(name)
        if not text:
            continue
        if text.isascii() and text.isdigit() and len(text) <= 10 and 1 <= int(text) <= most:
            values[field] = int(text)
        else:
            wrong.add(field)
            faults.append(
                f"{name} is {text[:40]!r}; it must be a whole number from 1 to {most}, or unset "
                "for the default."
            )
    switch = environ.get("SAGEMAKER_MULTI_MODEL", "")
    values["multi_model"] = switch.lower() == "true"
    if switch.lower() not in ("", "true", "false"):
        faults.append(f"SAGEMAKER_MULTI_MODEL is {switch[:40]!r}; it must be true, false or unset.")
    settings = Settings(**values)
    faults += _contradictions(settings, wrong)
    if faults:
        raise SettingsFault("\n".join(faults))
    return settings


def bind_address(settings: Settings) -> str:
    """Return address and port as messages show them."""
    address = f"[{settings.address}]" if ":" in settings.address else settings.address
    return f"{address}:{settings.port}"


def process_settings() -> Settings:
    """Return the settings of this process."""
    return read_settings(os.environ)


def process_environment() -> dict[str, str]:
    """Return this process' environment, for processes that it starts."""
    return dict(os.environ)


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def _nearest(name: str, known: set[str]) -> str:
    near = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.6)
    return f"did you mean {near[0]}?" if near else f"known are {', '.join(sorted(known))}."


def _contradictions(settings: Settings, wrong: set[str]) -> list[str]:
    """Return the faults of settings that contradict each other; those in `wrong` are left out."""
    faults = []
    if settings.max_request_rows > settings.queue_rows and not (
        {"max_request_rows", "queue_rows"} & wrong
    ):
        faults.append(
            f"ROUNDHOUSE_MAX_REQUEST_ROWS is {settings.max_request_rows}, more than "
            f"ROUNDHOUSE_QUEUE_ROWS {settings.queue_rows}; raise the queue, or lower the request."
        )
    if settings.multi_model and settings.manifest_sha256 is not None:
        faults.append(
            "ROUNDHOUSE_MANIFEST_SHA256 pins one archive, but a multi-model server loads those "
            "that requests name, each under a name that follows from its content; leave it unset."
        )
    return faults
