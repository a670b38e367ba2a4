"""Values of a template after its intrinsic functions are resolved.

What only a deployment knows is a marked text: equal to itself, and recognisable as unknown.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

MARK = "\0"
_MARKED = re.compile(f"{MARK}([^{MARK}]*){MARK}")
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?")


def unknown(label: str) -> str:
    """Return the text that stands for what a deployment decides, such as `Endpoint.Arn`."""
    return f"{MARK}{label}{MARK}"


def is_known(value: Any) -> bool:
    """Return False for a text that is, or holds, something unknown."""
    return not (isinstance(value, str) and MARK in value)


def is_unknown(value: Any) -> bool:
    """Return True for a value of which nothing is known, not even its type."""
    return isinstance(value, str) and _MARKED.fullmatch(value) is not None


def display(value: Any) -> str:
    """Return a value for a message; unknown parts as `${Endpoint.Arn}`, at most 160 characters."""
    text = _MARKED.sub(r"${\1}", value if isinstance(value, str) else str(value))
    return text if len(text) <= 160 else f"{text[:157]}..."


def known_text(value: Any) -> str | None:
    """Return a text that is wholly known; None for anything else."""
    return value if isinstance(value, str) and MARK not in value else None


def number(value: Any) -> float | None:
    """Return a number, or a text that CloudFormation reads as one; None for anything else."""
    if isinstance(value, bool) or not (
        isinstance(value, int | float) or (isinstance(value, str) and _NUMBER.fullmatch(value))
    ):
        return None
    try:
        figure = float(value)
    except OverflowError:
        return None
    return figure if math.isfinite(figure) else None


def boolean(value: Any) -> bool | None:
    """Return a boolean, or a text that CloudFormation reads as one; None for anything else."""
    if isinstance(value, bool):
        return value
    return {"true": True, "false": False}.get(value.lower()) if isinstance(value, str) else None


def fields(value: Any) -> dict[str, Any]:
    """Return an object; an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def items(value: Any) -> list[Any]:
    """Return a list, or the one thing in a list's place; nothing for None and the unknown."""
    if isinstance(value, list):
        return value
    return [] if value is None or is_unknown(value) else [value]


def texts(value: Any) -> list[str]:
    """Return the texts of a list, or the one text in its place; unknown ones are marked."""
    listed = value if isinstance(value, list) else [value]
    return [item for item in listed if isinstance(item, str)]


def objects(value: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the objects of a list with their positions."""
    return ((index, item) for index, item in enumerate(items(value)) if isinstance(item, dict))


def at(value: Any, *path: str) -> Any:
    """Return what lies at a path of keys; None when a key is missing or unknown."""
    for key in path:
        value = fields(value).get(key)
    return value
