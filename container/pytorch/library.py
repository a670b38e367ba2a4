"""torch in this Python: its version without importing it, and the module itself."""

from __future__ import annotations

import importlib
from importlib import metadata
from typing import Any

CPU_BUILD = "+cpu"
"""What ends the version of a build of torch without CUDA, as PyTorch's own index names it."""


class NoTorch(Exception):
    """This Python has no torch, or none for its GPU; the message is one sentence."""


def torch_version() -> str | None:
    """Return the version of torch as its package says it, +cpu included; None without torch."""
    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        return None


def import_torch() -> Any:
    """Import torch, which takes seconds. Raises NoTorch."""
    try:
        return importlib.import_module("torch")
    except (ImportError, OSError) as error:
        reason = " ".join(str(error).split())
        raise NoTorch(f"this Python cannot import torch ({reason})") from error
