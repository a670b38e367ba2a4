"""A Step Functions definition as a graph: states, where each goes, and whether it can end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from template_rules.values import MARK, fields, objects

KINDS = ("Task", "Pass", "Choice", "Wait", "Succeed", "Fail", "Parallel", "Map")
ENDS = ("Succeed", "Fail")


@dataclass(frozen=True, eq=False)
class Level:
    """The states of one level: the machine's own, a branch of a Parallel, or what a Map repeats."""

    path: str
    content: dict[str, Any]

    @property
    def states(self) -> dict[str, Any]:
        """States by name."""
        return fields(self.content.get("States"))


def levels(definition: Any, path: str = "") -> Iterator[Level]:
    """The outer level, and every level inside of it."""
    if not isinstance(definition, dict):
        return
    level = Level(path, definition)
    yield level
    for name, state in level.states.items():
        here = f"{path}{'.' if path else ''}States.{name}"
        for index, branch in objects(fields(state).get("Branches")):
            yield from levels(branch, f"{here}.Branches[{index}]")
        for key in ("Iterator", "ItemProcessor"):
            if key in fields(state):
                yield from levels(state[key], f"{here}.{key}")


def targets(state: Any) -> Iterator[tuple[str, str]]:
    """(path, state) of everywhere that a state may go."""
    state = fields(state)
    for key in ("Next", "Default"):
        if isinstance(state.get(key), str):
            yield key, state[key]
    for key in ("Choices", "Catch"):
        for index, each in objects(state.get(key)):
            if isinstance(each.get("Next"), str):
                yield f"{key}[{index}].Next", each["Next"]


def reachable(level: Level) -> set[str]:
    """States that a run may come to."""
    start = level.content.get("StartAt")
    ahead = [start] if isinstance(start, str) and start in level.states else []
    seen: set[str] = set(ahead)
    while ahead:
        for _, target in targets(level.states[ahead.pop()]):
            if target in level.states and target not in seen:
                seen.add(target)
                ahead.append(target)
    return seen


def is_open(text: str) -> bool:
    """True for a name that a deployment puts in."""
    return MARK in text or text.startswith("${")
