"""Step Functions definitions: their states, and the AWS API calls of their tasks."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from template_rules.templates import Assembly, Resource
from template_rules.values import fields, objects

MACHINE = "AWS::StepFunctions::StateMachine"
SDK = re.compile(r"arn:[^:]*:states:::aws-sdk:(?P<service>[^:]+):(?P<action>[^.]+)(?P<wait>\..*)?")
OPTIMIZED = re.compile(r"arn:[^:]*:states:::(?P<service>[^:]+):(?P<action>[^.]+)(?P<wait>\..*)?")
DYNAMIC = re.compile(r"^\{%(.*)%\}$", re.S)
LITERAL = re.compile(r'^\s*"((?:[^"\\]|\\.)*)"\s*&')


@dataclass(frozen=True, kw_only=True)
class Call:
    """One API call of a task: `service` and `action` as the task's resource names them."""

    machine: Resource
    state: str
    service: str
    action: str
    arguments: dict[str, Any]
    waits: bool
    integration: str

    @property
    def operation(self) -> str:
        """Return the name of the API operation, such as StartBuild."""
        return self.action[:1].upper() + self.action[1:]


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


def graphs(content: Any) -> Iterator[dict[str, Any]]:
    """Yield a definition, and the graphs of its branches and of what its maps repeat."""
    yield fields(content)
    for state in fields(fields(content).get("States")).values():
        for _, branch in objects(fields(state).get("Branches")):
            yield from graphs(branch)
        for key in ("Iterator", "ItemProcessor"):
            if key in fields(state):
                yield from graphs(state[key])


def states(content: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (name, state) of every graph of a definition."""
    for graph in graphs(content):
        for name, state in fields(graph.get("States")).items():
            yield name, fields(state)


def calls(assembly: Assembly) -> Iterator[Call]:
    """Yield the API calls of every state machine's tasks."""
    for machine in assembly.of_type(MACHINE):
        for name, state in states(definition(machine)):
            resource = str(state.get("Resource", ""))
            match = SDK.fullmatch(resource) or OPTIMIZED.fullmatch(resource)
            if state.get("Type") == "Task" and match is not None:
                arguments = state.get("Arguments", state.get("Parameters"))
                yield Call(
                    machine=machine,
                    state=name,
                    service=match["service"],
                    action=match["action"],
                    arguments=fields(arguments),
                    waits=match["wait"] is not None,
                    integration="aws-sdk" if SDK.fullmatch(resource) else "optimized",
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


@cache
def operations(service: str) -> dict[str, Any]:
    """Return the API operations of a service by name, with botocore's shapes; empty if unknown."""
    from botocore.exceptions import UnknownServiceError
    from botocore.session import get_session

    names = {"sfn": "stepfunctions", "cloudwatchlogs": "logs", "ssm": "ssm"}
    try:
        model = get_session().get_service_model(names.get(service, service))
    except UnknownServiceError:
        return {}
    return {name: model.operation_model(name) for name in model.operation_names}


def argument_faults(shape: Any, arguments: Any, path: str = "Arguments") -> Iterator[str]:
    """Yield the arguments that an API operation does not have, or does not have so."""
    if shape is None or shape.type_name != "structure" or not isinstance(arguments, dict):
        if shape is not None and shape.type_name == "list" and isinstance(arguments, list):
            for index, item in enumerate(arguments):
                yield from argument_faults(shape.member, item, f"{path}[{index}]")
        allowed = getattr(shape, "enum", None)
        if (
            allowed
            and isinstance(arguments, str)
            and arguments.isupper()
            and arguments not in allowed
        ):
            yield f"{path} is {arguments} (allowed: {', '.join(allowed[:8])})"
        return
    members = {name[:1].upper() + name[1:]: member for name, member in shape.members.items()}
    for key, value in arguments.items():
        name = key.removesuffix(".$")
        if name not in members:
            yield f"{path} has no {name} (allowed: {', '.join(sorted(members)[:40])})"
        elif not key.endswith(".$"):
            yield from argument_faults(members[name], value, f"{path}.{name}")
    given = {key.removesuffix(".$") for key in arguments}
    for name in shape.required_members:
        if name[:1].upper() + name[1:] not in given:
            yield f"{path} lacks the required {name[:1].upper() + name[1:]}"
