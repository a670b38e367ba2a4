"""One thing that is not as deployed, and how both sides are compared."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One thing that is not as deployed; None: it is not there."""

    endpoint: str
    """An endpoint, or another part of the environment, such as `foundation`."""
    what: str
    deployed: Any
    live: Any

    def as_dict(self) -> dict[str, Any]:
        """Return the difference as plain JSON."""
        return asdict(self)


Differ = Callable[[str, Any, Any], Iterator[Difference]]
"""Yields a difference, by name, where what is deployed and what is live differ."""


def differ_of(part: str) -> Differ:
    """Return the comparison of one endpoint or part of the environment."""

    def differ(what: str, deployed: Any, live: Any) -> Iterator[Difference]:
        if deployed != live:
            yield Difference(endpoint=part, what=what, deployed=deployed, live=live)

    return differ


def plain(value: Any) -> Any:
    """Return a value in the one way that both sides are compared in.

    Numbers are floats, lists are in order, and what a service adds as false or empty is left out.
    """
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items() if item not in (False, [], None)}
    if isinstance(value, list | tuple):
        return sorted(map(plain, value), key=lambda item: json.dumps(item, sort_keys=True))
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number else value


def common_part(live: Any, deployed: Any) -> Any:
    """Return what a service says of the keys that a template sets; it adds defaults to others."""
    if isinstance(live, Mapping) and isinstance(deployed, Mapping):
        return {key: common_part(live[key], deployed[key]) for key in live if key in deployed}
    if isinstance(live, list) and isinstance(deployed, list) and len(live) == len(deployed):
        return [common_part(*pair) for pair in zip(live, deployed, strict=True)]
    return live


def has_reference(value: Any) -> bool:
    """True when a value is known to CloudFormation alone."""
    if isinstance(value, Mapping):
        return (
            "Ref" in value
            or any(key.startswith("Fn::") for key in value)
            or any(map(has_reference, value.values()))
        )
    return isinstance(value, list) and any(map(has_reference, value))
