"""Step Functions definitions: their states, and the AWS API calls of their tasks."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from template_rules.hosting import MACHINE
from template_rules.templates import Assembly, Resource
from template_rules.values import fields, objects

TASK = re.compile(r"arn:[^:]*:states:::(aws-sdk:)?(?P<service>[^:]+):(?P<action>[^.]+)(\..*)?")
DYNAMIC = re.compile(r"^\{%(.*)%\}$", re.S)
LITERAL = re.compile(r'^\s*"((?:[^"\\]|\\.)*)"\s*&')


@dataclass(frozen=True, kw_only=True)
class Call:
    """One API call of a task; `operation` is the API's own name, such as StartBuild."""

    machine: Resource
    state: str
    service: str
    operation: str
    arguments: dict[str, Any]


def definition(machine: Resource) -> dict[str, Any]:
    """Return the definition of a state machine; empty when it cannot be read."""
    given = machine.properties.get("Definition", machine.properties.get("DefinitionString"))
    if isinstance(given, dict):
        return given
    text = str(given)
    for key, value in fields(machine.properties.get("DefinitionSubstitutions")).items():
        text = text.replace(f"${{{key}}}", str(value))
    try:
        return fields(json.loads(text, strict=False))
    except (ValueError, RecursionError):
        return {}


def states(content: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (name, state) of a definition, of its branches, and of what its maps repeat."""
    for name, state in fields(fields(content).get("States")).items():
        yield name, fields(state)
        for _, branch in objects(fields(state).get("Branches")):
            yield from states(branch)
        for key in ("Iterator", "ItemProcessor"):
            yield from states(fields(state).get(key))


def calls(assembly: Assembly) -> Iterator[Call]:
    """Yield the API calls of every state machine's tasks."""
    for machine in assembly.of_type(MACHINE):
        for name, state in states(definition(machine)):
            match = TASK.fullmatch(str(state.get("Resource", "")))
            if state.get("Type") == "Task" and match is not None:
                arguments = state.get("Arguments", state.get("Parameters"))
                yield Call(
                    machine=machine,
                    state=name,
                    service=match["service"],
                    operation=match["action"][:1].upper() + match["action"][1:],
                    arguments=fields(arguments),
                )


def sample(value: Any) -> str | None:
    """Return a text that an expression may give: its literal start with a tail; None if open."""
    if not isinstance(value, str):
        return None
    match = DYNAMIC.match(value)
    if match is None:
        return value
    start = LITERAL.match(match.group(1))
    return None if start is None else f"{start.group(1)}*"
