"""Rules of Step Functions state machines: API calls that exist, and maps that their type runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from onboarding.nearest import did_you_mean
from template_rules.rule import resource_rule, template_rule
from template_rules.state_machine import (
    MACHINE,
    argument_faults,
    calls,
    definition,
    operations,
    states,
)
from template_rules.templates import Assembly, Problem, Resource
from template_rules.values import at, is_known

PATH = "DefinitionString"


@template_rule(
    "E9280",
    "Task that calls an unknown API operation, or passes unknown arguments",
    source_url="https://docs.aws.amazon.com/step-functions/latest/dg/supported-services-awssdk.html",
)
def workflow_calls(assembly: Assembly) -> Iterator[Problem]:
    """A task calls an API operation that the service has, with arguments that it takes."""
    for call in calls(assembly):
        if call.integration != "aws-sdk":
            continue
        known = operations(call.service)
        where = f"state {call.state}"
        if not known:
            what = f"{where}: AWS SDK integrations have no service {call.service}"
            yield call.machine.problem(PATH, what, "write the SDK's name of the service")
        elif call.operation not in known or call.action[:1].isupper():
            names = [name[:1].lower() + name[1:] for name in known]
            what = f"{where}: {call.service} has no such action"
            way_out = did_you_mean(call.action, names, "write one that it has")
            yield call.machine.problem(PATH, what, way_out, value=call.action)
        else:
            for fault in argument_faults(known[call.operation].input_shape, call.arguments):
                what = f"{where}: {call.service}:{call.action}: {fault}"
                yield call.machine.problem(PATH, what, "write the API's own names")


@resource_rule("E9281", "State that the workflow's type does not run", MACHINE)
def workflow_states(machine: Resource) -> Iterator[Problem]:
    """A distributed map and a callback run in standard workflows; waits are whole seconds."""
    express = machine.properties.get("StateMachineType", "STANDARD") == "EXPRESS"
    for name, state in states(definition(machine)):
        for what in _faults(state, express=express):
            way_out = "write a standard workflow, or another state"
            yield machine.problem(PATH, f"state {name}: {what}", way_out)


def _faults(state: dict[str, Any], *, express: bool) -> Iterator[str]:
    config = at(state, "ItemProcessor", "ProcessorConfig") or {}
    distributed = config.get("Mode") == "DISTRIBUTED"
    waiting = str(state.get("Resource", "")).endswith((".sync", ".sync:2", ".waitForTaskToken"))
    if express and distributed:
        yield "an express workflow runs no distributed map"
    if express and waiting:
        yield "an express workflow does not wait for jobs or callbacks"
    if distributed and config.get("ExecutionType") not in ("STANDARD", "EXPRESS"):
        yield "a distributed map names its ExecutionType, STANDARD or EXPRESS"
    inner = state.get("ItemProcessor")
    if distributed and config.get("ExecutionType") == "EXPRESS":
        for name, child in states(inner):
            long = child.get("Type") == "Wait" or "sync" in str(child.get("Resource", ""))
            if long and is_known(name):
                yield f"an express map ends after five minutes, and {name} waits"
                break
    seconds = state.get("Seconds")
    whole = not isinstance(seconds, int | float) or (seconds > 0 and seconds == int(seconds))
    if state.get("Type") == "Wait" and not whole:
        yield f"a Wait state takes whole seconds above 0, not {seconds}"
