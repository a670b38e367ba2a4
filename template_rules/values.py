"""Values of a template once resolved.

What only a deployment knows is a marked text: equal to itself, and known to be unknown.
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
    """A text that stands for what a deployment will say, such as `Endpoint.EndpointName`."""
    return f"{MARK}{label}{MARK}"


def is_known(value: Any) -> bool:
    """False for a text that is, or holds, something unknown."""
    return not (isinstance(value, str) and MARK in value)


def is_wholly_unknown(value: Any) -> bool:
    """True for a value of which nothing is known, not even its type."""
    return isinstance(value, str) and _MARKED.fullmatch(value) is not None


def labels(value: Any) -> tuple[str, ...]:
    """What a text's unknown parts stand for."""
    return tuple(_MARKED.findall(value)) if isinstance(value, str) else ()


def masked(value: str) -> str:
    """A text with a letter in the place of each unknown part, for patterns."""
    return _MARKED.sub("x", value)


def shown(value: Any) -> str:
    """A value for a person; unknown parts as `${Endpoint.EndpointName}`."""
    text = _MARKED.sub(r"${\1}", value if isinstance(value, str) else str(value))
    return text if len(text) <= 160 else f"{text[:157]}..."


def text(value: Any) -> str | None:
    """A known text; None for anything else."""
    return value if isinstance(value, str) and MARK not in value else None


def number(value: Any) -> float | None:
    """A number, or a text that CloudFormation reads as one; None for anything else."""
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
    """A boolean, or a text that CloudFormation reads as one; None for anything else."""
    if isinstance(value, bool):
        return value
    return {"true": True, "false": False}.get(value.lower()) if isinstance(value, str) else None


def fields(value: Any) -> dict[str, Any]:
    """An object; empty for anything else."""
    return value if isinstance(value, dict) else {}


def surely_has(holder: Any, name: str) -> bool:
    """True for a property that is there in every deployment: not one that a condition may leave
    out.
    """
    return name in fields(holder) and not is_conditional(holder[name])


def is_conditional(value: Any) -> bool:
    """True for a value that a condition chooses."""
    return is_wholly_unknown(value) and value[1:].startswith('{"Fn::If"')


def items(value: Any) -> list[Any]:
    """A list, or the one thing that stands in a list's place; empty for nothing and for the
    unknown.
    """
    if isinstance(value, list):
        return value
    return [] if value is None or is_wholly_unknown(value) else [value]


def objects(value: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a list, each with its place."""
    return ((index, each) for index, each in enumerate(items(value)) if isinstance(each, dict))


def dimensions(value: Any) -> dict[str, Any]:
    """A list of CloudWatch dimensions as names and values."""
    return {str(each.get("Name")): each.get("Value") for _, each in objects(value)}


def at(value: Any, *path: str) -> Any:
    """What lies at a path of keys; None when a step is missing or unknown."""
    for key in path:
        value = fields(value).get(key)
    return value
