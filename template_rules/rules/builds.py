"""Rules of CodeBuild projects and Step Functions: images, privileges, API calls, maps."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from onboarding.nearest import did_you_mean
from template_rules.rule import resource_rule, template_rule
from template_rules.state_machine import (
    MACHINE,
    argument_faults,
    calls,
    definition,
    graphs,
    operations,
    states,
)
from template_rules.templates import Assembly, Problem, Resource
from template_rules.values import at, boolean, fields, is_known, items, known_text

PROJECT = "AWS::CodeBuild::Project"
REGISTRY = re.compile(r"\d{12}\.dkr\.ecr\.")
PATH = "DefinitionString"


@resource_rule("E9255", "Image that the build cannot pull", PROJECT)
def build_image(project: Resource) -> Iterator[Problem]:
    """A private image is pulled with the project's role, CodeBuild's own by CodeBuild."""
    image = known_text(project.at("Environment.Image")) or ""
    given = project.at("Environment.ImagePullCredentialsType") or "CODEBUILD"
    wanted = None
    if REGISTRY.match(image):
        wanted = "SERVICE_ROLE"
    elif image.startswith("aws/codebuild/"):
        wanted = "CODEBUILD"
    if wanted is not None and is_known(given) and given != wanted:
        path, what = "Environment.ImagePullCredentialsType", "the image cannot be pulled"
        yield project.problem(path, what, f"write {wanted}", value=given, allowed=wanted)


@resource_rule(
    "E9254", "Privileged build without Docker, or image build without privileges", PROJECT
)
def build_privileges(project: Resource) -> Iterator[Problem]:
    """A build is privileged to run Docker, and only then."""
    commands = (known_text(project.at("Source.BuildSpec")) or "").lower()
    privileged = boolean(project.at("Environment.PrivilegedMode") or False)
    images = re.search(r"docker|buildx|podman|images?\.py|images\.json", commands)
    if "\n" in commands and privileged is not None and privileged != bool(images):
        what = "only a build of images needs Docker, and it does"
        value = str(privileged).lower()
        path, way_out = "Environment.PrivilegedMode", f"write {str(bool(images)).lower()}"
        yield project.problem(path, what, way_out, value=value)


@template_rule("E9280", "Task that calls an unknown API operation, or passes unknown arguments")
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


@resource_rule("E9281", "State that is not there, or that its workflow does not run", MACHINE)
def workflow_states(machine: Resource) -> Iterator[Problem]:
    """Every next state exists; a distributed map and a callback run in standard workflows."""
    express = machine.properties.get("StateMachineType", "STANDARD") == "EXPRESS"
    for graph in graphs(definition(machine)):
        named = fields(graph.get("States"))
        for place, target in _targets(graph):
            if target not in named:
                what = f"{place} goes to a state that is not there"
                yield machine.problem(PATH, what, value=target, allowed=", ".join(named))
    for name, state in states(definition(machine)):
        for what in _faults(state, express=express):
            way_out = "write a standard workflow, or another state"
            yield machine.problem(PATH, f"state {name}: {what}", way_out)


def _targets(graph: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield (place, state) of every transition of one graph of states."""
    yield "StartAt", graph.get("StartAt")
    for name, state in fields(graph.get("States")).items():
        branches = [*items(at(state, "Choices")), *items(at(state, "Catch"))]
        for target in (at(state, "Next"), at(state, "Default"), *(at(b, "Next") for b in branches)):
            if target is not None:
                yield f"state {name}", target


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
