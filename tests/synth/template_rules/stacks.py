"""Real assemblies to break: the dev environment and richer ones, and ways to change them."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from template_rules.findings import assembly_findings, check_files, own_findings
from template_rules.read import TemplateFiles, read_templates
from template_rules.templates import Template
from tests.synth.assembly import read_stacks, synthesized
from tests.synth.deployments import environment, locked
from tests.synth.endpoint_cases import CAPTURE, POOLS, QUEUE, endpoint_settings
from tests.synth.full_stage import SETTINGS, everything
from tests.synth.generation_cases import SCALED, generator

Document = dict[str, Any]
Stacks = dict[str, Document]
"""Templates by the end of their stack's name: Foundation, Builds, Endpoint-example."""
Change = Callable[[Stacks], None]

ROLE = "AWS::IAM::Role"
MODEL = "AWS::SageMaker::Model"
CONFIG = "AWS::SageMaker::EndpointConfig"
ENDPOINT = "AWS::SageMaker::Endpoint"
ALARM, DASHBOARD = "AWS::CloudWatch::Alarm", "AWS::CloudWatch::Dashboard"
TARGET = "AWS::ApplicationAutoScaling::ScalableTarget"
POLICY = "AWS::ApplicationAutoScaling::ScalingPolicy"
PROJECT, MACHINE = "AWS::CodeBuild::Project", "AWS::StepFunctions::StateMachine"
SCHEDULE = """    max: 2
    schedule:
      - {schedule: 'cron(0 7 ? * MON-FRI *)', min: 2, timezone: Europe/Berlin}
      - {schedule: 'cron(0 19 ? * MON-FRI *)', min: 1, timezone: Europe/Berlin}"""
ASSEMBLIES = ("dev", "everything", "queue", "pools", "volume", "generator")


@cache
def folder() -> TemporaryDirectory[str]:
    """Return a folder with every assembly, for the whole session."""
    root = TemporaryDirectory()
    path = Path(root.name)
    synthesized(path / "dev", environment("dev"), locked("dev"))
    kinds: dict[str, dict[str, Any]] = {
        "everything": endpoint_settings(CAPTURE, "dashboard: true", **{"    max: 2": SCHEDULE}),
        "queue": endpoint_settings(QUEUE),
        "pools": endpoint_settings(POOLS),
        "volume": {"ml.g5.xlarge": "ml.c7i.xlarge"},
    }
    for name, endpoint in kinds.items():
        everything(path / name, SETTINGS, endpoint)
    chat = generator(**SCALED)
    synthesized(path / "generator", chat.environment, (), generators=[chat])
    return root


@cache
def assembly_folder(name: str) -> Path:
    """Return the cloud assembly of a name."""
    path = Path(folder().name) / name
    return path / "out" if (path / "out").is_dir() else path


@cache
def read(name: str) -> TemplateFiles:
    return read_templates(assembly_folder(name))


@cache
def _keys(name: str) -> dict[str, str]:
    """Return the end of each stack's path, by its template's file name."""
    stacks = read_stacks(assembly_folder(name))
    return {stack.path.name: stack.name for stack in stacks}


def change_templates(name: str, change: Change) -> tuple[list[Template], list[Template]]:
    """Return an assembly's templates with a change, and those of them that changed."""
    before, keys = read(name).templates, _keys(name)
    names = {item.file: keys[Path(item.file).name] for item in before}
    documents = {names[item.file]: json.loads(json.dumps(item.document)) for item in before}
    after = copy.deepcopy(documents)
    change(after)
    templates, different = [], []
    for item in before:
        document = after[names[item.file]]
        new = Template(item.file, document, stack=item.stack, depends_on=item.depends_on)
        templates.append(new)
        if document != documents[names[item.file]]:
            different.append(new)
    return templates, different


def refusals(name: str, change: Change) -> set[str]:
    """Return the ids of the errors that a changed assembly has; the unchanged one has none."""
    templates, different = change_templates(name, change)
    assert different, "the fault changes nothing"
    found = {item.rule for item in assembly_findings(templates) if item.severity == "error"}
    for template in different:
        found |= {item.rule for item in own_findings(template)}
    if not found:
        linted = check_files(TemplateFiles(templates=different))
        found = {item.rule for item in linted if item.severity == "error"}
    return found


def resources(template: Document, kind: str, text: str = "") -> Iterator[Document]:
    """Yield the resources of a type that hold a text."""
    for resource in template["Resources"].values():
        if resource["Type"] == kind and text in json.dumps(resource):
            yield resource


def one(template: Document, kind: str, text: str = "") -> Document:
    """Return the properties of the first resource of a type that holds a text."""
    return next(resources(template, kind, text))["Properties"]


def logical_id(template: Document, kind: str, text: str = "") -> str:
    """Return the logical id of the first resource of a type that holds a text."""
    wanted = next(resources(template, kind, text))
    return next(key for key, item in template["Resources"].items() if item is wanted)


def alarm(template: Document, name: str) -> Document:
    """Return the properties of the alarm whose name has an end."""
    alarms = (item["Properties"] for item in resources(template, ALARM))
    return next(item for item in alarms if item["AlarmName"].endswith(name))


def statements(template: Document, role: str = "") -> Iterator[tuple[list[Document], Document]]:
    """Yield (list, statement) of a role's own policies and of those beside it."""
    for key, resource in template["Resources"].items():
        own = resource.get("Properties", {})
        beside_role = role in json.dumps(own.get("Roles", []))
        documents = [item["PolicyDocument"] for item in own.get("Policies", [])]
        if resource["Type"] == ROLE and role in key:
            pass
        elif resource["Type"] in ("AWS::IAM::Policy", "AWS::IAM::ManagedPolicy") and beside_role:
            documents = [own["PolicyDocument"]]
        else:
            continue
        for document in documents:
            for statement in list(document["Statement"]):
                yield document["Statement"], statement


def deny(template: Document, action: str, role: str = "", text: str = "") -> None:
    """Take an action out of every statement of a role that holds a text."""
    for siblings, statement in statements(template, role):
        actions = statement["Action"]
        actions = [actions] if isinstance(actions, str) else actions
        if action in actions and text in json.dumps(statement):
            statement["Action"] = [item for item in actions if item != action]
            if not statement["Action"]:
                siblings.remove(statement)


def replace(template: Document, old: str, new: str, role: str = "", text: str = "") -> None:
    """Replace a text in every statement of a role that holds another."""
    for siblings, statement in statements(template, role):
        if text in json.dumps(statement):
            siblings[siblings.index(statement)] = json.loads(
                json.dumps(statement).replace(old, new)
            )


def machine(template: Document, old: str, new: str) -> None:
    """Replace a text in a state machine's definition."""
    properties = one(template, MACHINE)
    assert old in json.dumps(properties["DefinitionString"])
    text = json.dumps(properties["DefinitionString"]).replace(old, new)
    properties["DefinitionString"] = json.loads(text)


def dashboard(template: Document, old: str, new: str) -> None:
    """Replace a text in a dashboard's body."""
    properties = one(template, DASHBOARD)
    text = json.dumps(properties["DashboardBody"])
    assert old in text
    properties["DashboardBody"] = json.loads(text.replace(old, new))


def metric(properties: Document, identifier: str) -> Document:
    """Return a metric of an alarm's metric math."""
    found = next(item for item in properties["Metrics"] if item["Id"] == identifier)
    return found["MetricStat"]
