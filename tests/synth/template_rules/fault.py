"""A single fault, and the table that the modules of each kind fill."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.synth.template_rules.stacks import Change, Document, Stacks, one

ELSEWHERE = {"StringEquals": {"aws:SourceAccount": "999999999999"}}
EXAMPLE, SHARED = "Endpoint-example", "Endpoint-shared"
EMBEDDER, TEXT = "Endpoint-sentence-embedder", "Endpoint-text-shared"


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One fault: its kind, the assembly it is put into, and the change."""

    kind: str
    name: str
    assembly: str
    change: Change


FAULTS: list[Fault] = []


def add(kind: str, assembly: str, name: str, change: Change) -> None:
    """Add a fault to the table."""
    FAULTS.append(Fault(kind=kind, name=name, assembly=assembly, change=change))


def at(value: Document, *path: str) -> Any:
    """Return what lies at a path."""
    for key in path:
        value = value[key]
    return value


def update(
    kind: str,
    assembly: str,
    name: str,
    stack: str,
    resource_type: str,
    *path: str,
    text: str = "",
    **new: Any,
) -> None:
    """Add a fault that sets fields at a path of the first resource of a type that holds a text."""
    add(kind, assembly, name, lambda s: at(one(s[stack], resource_type, text), *path).update(new))


def without(s: Stacks, stack: str, kind: str, *path: str, text: str = "") -> None:
    """Remove a property of the first resource of a type."""
    del at(one(s[stack], kind, text), *path[:-1])[path[-1]]
