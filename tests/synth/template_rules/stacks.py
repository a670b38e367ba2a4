"""Real assemblies to break: the dev environment and richer ones, and ways to change them."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from template_rules.findings import check_files, own_findings
from template_rules.read import TemplateFiles, read_templates
from template_rules.templates import Template
from tests.synth.assembly import read_stacks, synthesized
from tests.synth.deployments import environment, locked
from tests.synth.endpoint_cases import CAPTURE, POOLS, QUEUE, endpoint_settings
from tests.synth.full_stage import SETTINGS, everything
from tests.synth.generation_cases import SCALED, WITHOUT_COMPONENTS, generator

Document = dict[str, Any]
Stacks = dict[str, Document]
"""Templates by the end of their stack's name: Foundation, Builds, Endpoint-example."""
Change = Callable[[Stacks], None]

FOUNDATION, BUILDS = "Foundation", "Builds"
EXAMPLE, SHARED, CHAT = "Endpoint-example", "Endpoint-shared", "Endpoint-chat"
EMBEDDER, TEXT = "Endpoint-sentence-embedder", "Endpoint-text-shared"
GONE = object()
"""In place of a value: the property is taken out."""
ROLE = "AWS::IAM::Role"
MODEL = "AWS::SageMaker::Model"
CONFIG = "AWS::SageMaker::EndpointConfig"
ENDPOINT = "AWS::SageMaker::Endpoint"
ALARM = "AWS::CloudWatch::Alarm"
COMPONENT = "AWS::SageMaker::InferenceComponent"
TARGET = "AWS::ApplicationAutoScaling::ScalableTarget"
POLICY = "AWS::ApplicationAutoScaling::ScalingPolicy"
BUCKET, KEY, LOGS = "AWS::S3::Bucket", "AWS::KMS::Key", "AWS::Logs::LogGroup"
TOPIC, TOPIC_POLICY = "AWS::SNS::Topic", "AWS::SNS::TopicPolicy"
REPOSITORY, VPC_ENDPOINT = "AWS::ECR::Repository", "AWS::EC2::VPCEndpoint"
PROJECT, MACHINE = "AWS::CodeBuild::Project", "AWS::StepFunctions::StateMachine"
SCHEDULE = """    max: 2
    schedule:
      - {schedule: 'cron(0 7 ? * MON-FRI *)', min: 2, timezone: Europe/Berlin}
      - {schedule: 'cron(0 19 ? * MON-FRI *)', min: 1, timezone: Europe/Berlin}"""
CHATS = {"generator": SCALED, "model generator": WITHOUT_COMPONENTS}
ASSEMBLIES = ("dev", "local", "everything", "queue", "pools", "volume", *CHATS)


@cache
def folder() -> TemporaryDirectory[str]:
    """Return a folder with every assembly, for the whole session."""
    root = TemporaryDirectory()
    path = Path(root.name)
    for name in ("dev", "local"):
        synthesized(path / name, environment(name), locked(name))
    kinds: dict[str, dict[str, Any]] = {
        "everything": endpoint_settings(CAPTURE, "dashboard: true", **{"    max: 2": SCHEDULE}),
        "queue": endpoint_settings(QUEUE, **{"    min: 1": "    min: 0"}),
        "pools": endpoint_settings(POOLS),
        "volume": {"ml.g5.xlarge": "ml.c7i.xlarge"},
    }
    for name, endpoint in kinds.items():
        everything(path / name, SETTINGS, endpoint)
    for name, changes in CHATS.items():
        chat = generator(**changes)
        synthesized(path / name, chat.environment, (), generators=[chat])
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
        new = Template(item.file, document, stack=item.stack)
        templates.append(new)
        if document != documents[names[item.file]]:
            different.append(new)
    return templates, different


def refusals(name: str, change: Change, *, linted: bool = False) -> set[str]:
    """Return the ids of the errors that a changed assembly has; with `linted` cfn-lint's too."""
    templates, different = change_templates(name, change)
    assert different, "the fault changes nothing"
    if linted:
        found = check_files(TemplateFiles(templates=different))
        return {item.rule for item in found if item.severity == "error"}
    return {item.rule for item in own_findings(templates)}


def resources(template: Document, kind: str, text: str = "") -> Iterator[Document]:
    """Yield the resources of a type that hold a text."""
    for resource in template["Resources"].values():
        if resource["Type"] == kind and text in json.dumps(resource):
            yield resource


def one(template: Document, kind: str, text: str = "") -> Document:
    """Return the properties of the first resource of a type that holds a text."""
    return next(resources(template, kind, text))["Properties"]


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


def deny(stack: str, action: str, role: str = "", text: str = "") -> Change:
    """Return a change that takes an action out of every statement of a role that holds a text."""

    def change(stacks: Stacks) -> None:
        for siblings, statement in statements(stacks[stack], role):
            actions = statement["Action"]
            actions = [actions] if isinstance(actions, str) else actions
            if action in actions and text in json.dumps(statement):
                statement["Action"] = [item for item in actions if item != action]
                if not statement["Action"]:
                    siblings.remove(statement)

    return change


def replace(stack: str, old: str, new: str, role: str = "") -> Change:
    """Return a change that replaces a text in every statement of a role."""

    def change(stacks: Stacks) -> None:
        for siblings, statement in statements(stacks[stack], role):
            text = json.dumps(statement).replace(old, new)
            siblings[siblings.index(statement)] = json.loads(text)

    return change


def put(stack: str, kind: str, path: str, value: Any, text: str = "") -> Change:
    """Return a change that puts a value at a path of the first resource of a type with a text."""

    def change(stacks: Stacks) -> None:
        holder: Any = one(stacks[stack], kind, text)
        *keys, last = (int(key) if key.isdecimal() else key for key in path.split("."))
        for key in keys:
            holder = holder[key]
        if value is GONE:
            del holder[last]
        else:
            holder[last] = value

    return change


def rewrite(stack: str, kind: str, name: str, old: str, new: str, text: str = "") -> Change:
    """Return a change that replaces a text in one property."""

    def change(stacks: Stacks) -> None:
        properties = one(stacks[stack], kind, text)
        before = json.dumps(properties[name])
        assert old in before
        properties[name] = json.loads(before.replace(old, new))

    return change
