"""Rules of CodeBuild projects: the machine, its image and its commands; of event rules."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import yaml

from onboarding.nearest import did_you_mean
from template_rules.rule import resource_rule
from template_rules.serving_images import image_name
from template_rules.templates import Problem, Resource
from template_rules.values import boolean, fields, is_known, items, known_text

PROJECT = "AWS::CodeBuild::Project"
GENERAL = tuple(f"BUILD_GENERAL1_{s}" for s in ("SMALL", "MEDIUM", "LARGE", "XLARGE", "2XLARGE"))
SERVERLESS = tuple(f"BUILD_LAMBDA_{size}GB" for size in (1, 2, 4, 8, 10))
FLEET = ("ATTRIBUTE_BASED_COMPUTE", "CUSTOM_INSTANCE_TYPE")
COMPUTE_TYPES: dict[str, tuple[str, ...]] = {
    "LINUX_GPU_CONTAINER": ("BUILD_GENERAL1_SMALL", *FLEET),
    "LINUX_LAMBDA_CONTAINER": SERVERLESS,
    "ARM_LAMBDA_CONTAINER": SERVERLESS,
    "MAC_ARM": ("BUILD_GENERAL1_MEDIUM", "BUILD_GENERAL1_LARGE", *FLEET),
    **dict.fromkeys(
        (
            "LINUX_CONTAINER",
            "ARM_CONTAINER",
            "WINDOWS_CONTAINER",
            "WINDOWS_SERVER_2019_CONTAINER",
            "WINDOWS_SERVER_2022_CONTAINER",
            "LINUX_EC2",
            "ARM_EC2",
            "WINDOWS_EC2",
        ),
        (*GENERAL, *FLEET),
    ),
}
"""Environment type -> compute types; V100 machines (GPU LARGE) are below TensorRT 10.5's GPUs.

Source: CodeBuild user guide, "Build environment compute modes and types".
"""
PHASES = ("install", "pre_build", "build", "post_build")
EVENT_FIELDS = [
    "version",
    "id",
    "detail-type",
    "source",
    "account",
    "time",
    "region",
    "resources",
    "detail",
    "replay-name",
    "$or",
]


@resource_rule("E9250", "Environment or compute type that CodeBuild does not have", PROJECT)
def build_machine(project: Resource) -> Iterator[Problem]:
    """A project's environment and compute type are ones that CodeBuild has."""
    kind = known_text(project.at("Environment.Type"))
    compute = known_text(project.at("Environment.ComputeType"))
    if kind is not None and kind not in COMPUTE_TYPES:
        yield project.problem(
            "Environment.Type",
            "CodeBuild has no such environment",
            did_you_mean(kind, COMPUTE_TYPES, "take one of these"),
            value=kind,
            allowed=COMPUTE_TYPES,
        )
    elif kind is not None and compute is not None and compute not in COMPUTE_TYPES[kind]:
        yield project.problem(
            "Environment.ComputeType",
            f"{kind} has no such compute type, or TensorRT does not support its GPU",
            "take one of these",
            value=compute,
            allowed=COMPUTE_TYPES[kind],
        )


@resource_rule("E9255", "Image that the build cannot pull", PROJECT)
def build_image(project: Resource) -> Iterator[Problem]:
    """A private image is pulled with the project's role, CodeBuild's own by CodeBuild."""
    image = known_text(project.at("Environment.Image")) or ""
    given = project.at("Environment.ImagePullCredentialsType") or "CODEBUILD"
    wanted = None
    if image_name(image) is not None:
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


@resource_rule("E9256", "Build specification that CodeBuild refuses", PROJECT)
def build_specification(project: Resource) -> Iterator[Problem]:
    """A project without a source has a build specification, with commands in known phases."""
    given = project.at("Source.BuildSpec")
    fault = None
    if project.at("Source.Type") == "NO_SOURCE" and given is None:
        fault = "there is no source, and no build specification"
    elif isinstance(given, str) and is_known(given) and "\n" in given:
        fault = _build_specification_fault(given)
    if fault is not None:
        way_out = "write `version: 0.2` and phases with commands"
        yield project.problem("Source.BuildSpec", fault, way_out)


def _build_specification_fault(text: str) -> str | None:
    try:
        document = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        return f"the build specification is no YAML: {' '.join(str(error).split())[:160]}"
    phases = fields(fields(document).get("phases"))
    if str(fields(document).get("version")) not in ("0.1", "0.2"):
        return "the build specification has no version 0.1 or 0.2"
    if set(phases) - set(PHASES):
        return f"CodeBuild has no phase {', '.join(sorted(set(phases) - set(PHASES)))}"
    commands = [items(fields(phase).get("commands")) for phase in phases.values()]
    return None if any(commands) else "the build specification has no command"


@resource_rule("E9270", "Event pattern that EventBridge refuses", "AWS::Events::Rule")
def event_pattern(rule: Resource) -> Iterator[Problem]:
    """An event pattern is an object whose fields each list what they match."""
    pattern = rule.properties.get("EventPattern")
    if isinstance(pattern, str) and is_known(pattern):
        try:
            pattern = json.loads(pattern)
        except ValueError:
            pattern = {}
    if pattern is None or isinstance(pattern, str):
        return
    for fault in _pattern_faults(pattern):
        yield rule.problem("EventPattern", fault, 'write fields such as {"source": [...]}')


def _pattern_faults(pattern: Any) -> Iterator[str]:
    if not isinstance(pattern, dict) or not pattern:
        yield "the pattern is no object with fields"
        return
    for key in pattern:
        if key not in EVENT_FIELDS:
            yield f"events have no field {key}"
    ahead = list(pattern.items())
    while ahead:
        key, value = ahead.pop()
        if isinstance(value, dict) and value:
            ahead += value.items()
        elif not isinstance(value, list) or not value:
            yield f"field {key} is no list of what it matches"
