"""Rules of Step Functions definitions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from onboarding.nearest import did_you_mean, nearest
from template_rules.dashboard_body import body_of
from template_rules.finding import Problem
from template_rules.rule import rule
from template_rules.state_machine import ENDS, KINDS, Level, is_open, levels, reachable, targets
from template_rules.template import Resource, Template
from template_rules.values import fields, items, number, objects, surely_has, text

MACHINE = "AWS::StepFunctions::StateMachine"
ERRORS = """
States.ALL States.HeartbeatTimeout States.Timeout States.TaskFailed States.Permissions States.ResultPathMatchFailure
States.ParameterPathFailure States.BranchFailed States.NoChoiceMatched States.IntrinsicFailure States.DataLimitExceeded
States.ExceedToleratedFailureThreshold States.ItemReaderFailed States.ResultWriterFailed States.Runtime
States.QueryEvaluationError
"""
RETRY_BOUNDS = {
    "IntervalSeconds": (1, 31_622_400),
    "MaxAttempts": (0, 99_999_999),
    "BackoffRate": (1, 1e9),
}


@rule("RH260", "a state machine's definition is JSON, and there is one")
def definition_not_json(template: Template) -> Iterator[Problem]:
    for machine in template.of_type(MACHINE):
        perhaps = [
            name
            for name in ("DefinitionString", "Definition", "DefinitionS3Location")
            if name in machine.properties
        ]
        there = [name for name in perhaps if surely_has(machine.properties, name)]
        if len(there) > 1 or not perhaps:
            what = (
                "the state machine has no definition"
                if not there
                else f"the state machine has {' and '.join(there)}"
            )
            yield Problem(
                resource=machine.logical_id,
                path="DefinitionString",
                what=what,
                way_out="write exactly one",
            )
        _, fault = body_of(machine.properties.get("DefinitionString"))
        if fault is not None:
            what = f"the definition is no JSON: {fault}"
            yield Problem(
                resource=machine.logical_id,
                path="DefinitionString",
                what=what,
                way_out="write it with a JSON library",
            )


@rule("RH261", "a definition starts at one of its states")
def start_not_there(template: Template) -> Iterator[Problem]:
    for machine, level in levels_of(template):
        start = level.content.get("StartAt")
        path = path_in(level, "StartAt")
        if not level.states:
            yield Problem(
                resource=machine.logical_id,
                path=path_in(level, "States"),
                what="there is no state",
                way_out="write one",
            )
        elif start is None:
            allowed = ", ".join(level.states)
            yield Problem(
                resource=machine.logical_id,
                path=path,
                what="StartAt is missing",
                allowed=allowed,
                way_out="name the first state",
            )
        elif isinstance(start, str) and start not in level.states and not is_open(start):
            yield _missing(machine, path, start, level)


@rule("RH262", "a state goes to states that are there")
def next_not_there(template: Template) -> Iterator[Problem]:
    for machine, level in levels_of(template):
        for name, state in level.states.items():
            for path, target in targets(state):
                if target not in level.states and not is_open(target):
                    yield _missing(machine, path_in(level, f"States.{name}.{path}"), target, level)


@rule("RH263", "every state can be reached")
def unreachable_state(template: Template) -> Iterator[Problem]:
    for machine, level in levels_of(template):
        start = level.content.get("StartAt")
        whole = all(
            target in level.states
            for state in level.states.values()
            for _, target in targets(state)
        )
        if not isinstance(start, str) or start not in level.states or not whole:
            continue
        for name in level.states.keys() - reachable(level):
            path = path_in(level, f"States.{name}")
            yield Problem(
                resource=machine.logical_id,
                path=path,
                what="no run ever comes to the state",
                way_out="go there, or take it out",
            )


@rule("RH264", "a state ends or goes on, and does what its type does")
def ill_formed_state(template: Template) -> Iterator[Problem]:
    for machine, level in levels_of(template):
        for name, state in level.states.items():
            for what, way_out in _state_faults(fields(state)):
                yield Problem(
                    resource=machine.logical_id,
                    path=path_in(level, f"States.{name}"),
                    what=what,
                    way_out=way_out,
                )


@rule("RH265", "a run can end: no state machine goes round for ever")
def never_ends(template: Template) -> Iterator[Problem]:
    for machine, level in levels_of(template):
        come_to = reachable(level)
        ends = [name for name in come_to if _ends(fields(level.states[name]))]
        if (
            come_to
            and not ends
            and all(
                target in level.states
                for name in come_to
                for _, target in targets(level.states[name])
            )
        ):
            what = "no state that a run comes to ends it"
            yield Problem(
                resource=machine.logical_id,
                path=path_in(level, "States"),
                what=what,
                way_out="write End: true somewhere",
            )


@rule("RH266", "retries and catches name errors, within Step Functions' bounds")
def ill_formed_retry(template: Template) -> Iterator[Problem]:
    for machine, level in levels_of(template):
        for name, state in level.states.items():
            for key in ("Retry", "Catch"):
                for index, each in objects(fields(state).get(key)):
                    path = path_in(level, f"States.{name}.{key}[{index}]")
                    for what, value in _retry_faults(
                        each, last=index == len(items(state[key])) - 1
                    ):
                        yield Problem(
                            resource=machine.logical_id,
                            path=path,
                            what=what,
                            value=value,
                            way_out="change it",
                        )


@rule("RH267", "what a definition's text leaves open is put in by the template")
def substitution_missing(template: Template) -> Iterator[Problem]:
    for machine in template.of_type(MACHINE):
        given = fields(machine.properties.get("DefinitionSubstitutions"))
        raw = fields(machine.raw.get("Properties")).get("DefinitionString")
        written = (
            raw
            if isinstance(raw, str)
            else json.dumps(machine.properties.get("Definition", ""), default=str)
        )
        for name in given:
            if (
                "${" + str(name) + "}" not in written
                and "DefinitionS3Location" not in machine.properties
                and isinstance(raw, str)
            ):
                path = f"DefinitionSubstitutions.{name}"
                what = "the definition has no such place"
                yield Problem(
                    resource=machine.logical_id,
                    path=path,
                    what=what,
                    value=str(name),
                    way_out="take it out, or use it",
                )


def levels_of(template: Template) -> Iterator[tuple[Resource, Level]]:
    """Every level of every state machine."""
    for machine in template.of_type(MACHINE):
        definition = machine.properties.get("Definition")
        if definition is None:
            definition, _ = body_of(machine.properties.get("DefinitionString"))
        for level in levels(definition):
            yield machine, level


def _state_faults(state: dict[str, Any]) -> Iterator[tuple[str, str]]:
    kind = state.get("Type")
    if not isinstance(kind, str):
        yield "the state has no Type", f"write one of {', '.join(KINDS)}"
        return
    if is_open(kind):
        return
    if kind not in KINDS:
        yield (
            f"there is no state of type {kind}",
            did_you_mean(kind, KINDS, f"write one of {', '.join(KINDS)}"),
        )
        return
    goes_on, ends = "Next" in state, "End" in state
    if kind in ENDS and (goes_on or ends):
        yield f"a {kind} state neither goes on nor says End", "take it out"
    if kind == "Choice" and (goes_on or ends):
        yield "a Choice goes where its choices say", "take Next and End out"
    if kind == "Choice" and not items(state.get("Choices")):
        yield "a Choice has no choices", "write some"
    if kind not in (*ENDS, "Choice") and goes_on == ends:
        yield (
            "the state both goes on and ends" if ends else "the state neither goes on nor ends",
            "write Next or End, one of them",
        )
    needed = {"Task": ("Resource",), "Parallel": ("Branches",)}.get(kind, ())
    for name in needed:
        if name not in state:
            yield f"a {kind} state has no {name}", f"write {name}"
    if kind == "Map" and not {"Iterator", "ItemProcessor"} & set(state):
        yield "a Map state says nothing of what it repeats", "write ItemProcessor"
    waits = {"Seconds", "SecondsPath", "Timestamp", "TimestampPath"} & set(state)
    if kind == "Wait" and len(waits) != 1:
        yield "a Wait state says in exactly one way how long", "write Seconds, or one of the others"


def _retry_faults(each: dict[str, Any], *, last: bool) -> Iterator[tuple[str, str | None]]:
    errors = [name for name in items(each.get("ErrorEquals")) if isinstance(name, str)]
    if not errors:
        yield "ErrorEquals is missing or empty", None
    if "States.ALL" in errors and (len(errors) > 1 or not last):
        yield "States.ALL stands alone, and last", ", ".join(errors)
    for name in errors:
        if name.startswith("States.") and name not in ERRORS.split():
            match = nearest(name, ERRORS.split())
            yield (
                f"Step Functions has no such error{'' if match is None else f'; {match} is meant?'}",
                name,
            )
    for name, (least, most) in RETRY_BOUNDS.items():
        value = number(each.get(name))
        if value is not None and not least <= value <= most:
            yield f"{name} is out of bounds", f"{value:g}"


def _ends(state: dict[str, Any]) -> bool:
    return state.get("End") is True or text(state.get("Type")) in ENDS


def _missing(machine: Resource, path: str, name: str, level: Level) -> Problem:
    return Problem(
        resource=machine.logical_id,
        path=path,
        what="there is no such state",
        value=name,
        allowed=", ".join(level.states),
        way_out=did_you_mean(name, level.states, "name one of these"),
    )


def path_in(level: Level, path: str) -> str:
    """Where something of a level stands, from the definition on."""
    return f"Definition.{level.path}{'.' if level.path else ''}{path}"
