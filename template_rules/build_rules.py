"""Rules of CodeBuild projects: the machine, its time, its image, its commands."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import yaml

from onboarding.nearest import did_you_mean
from template_rules.finding import Problem
from template_rules.policy_view import identity_statements
from template_rules.rule import rule
from template_rules.serving_images import image_name
from template_rules.template import Resource, Template
from template_rules.values import MARK, at, boolean, fields, is_known, items, text

PROJECT = "AWS::CodeBuild::Project"
GENERAL = tuple(
    f"BUILD_GENERAL1_{size}" for size in ("SMALL", "MEDIUM", "LARGE", "XLARGE", "2XLARGE")
)
SERVERLESS = tuple(f"BUILD_LAMBDA_{size}GB" for size in (1, 2, 4, 8, 10))
FLEET = ("ATTRIBUTE_BASED_COMPUTE", "CUSTOM_INSTANCE_TYPE")
COMPUTE_TYPES: dict[str, tuple[str, ...]] = {
    "LINUX_CONTAINER": (*GENERAL, *FLEET),
    "LINUX_GPU_CONTAINER": ("BUILD_GENERAL1_SMALL", "BUILD_GENERAL1_LARGE", *FLEET),
    "ARM_CONTAINER": (*GENERAL, *FLEET),
    "WINDOWS_CONTAINER": (*GENERAL, *FLEET),
    "WINDOWS_SERVER_2019_CONTAINER": (*GENERAL, *FLEET),
    "WINDOWS_SERVER_2022_CONTAINER": (*GENERAL, *FLEET),
    "LINUX_LAMBDA_CONTAINER": SERVERLESS,
    "ARM_LAMBDA_CONTAINER": SERVERLESS,
    "LINUX_EC2": (*GENERAL, *FLEET),
    "ARM_EC2": (*GENERAL, *FLEET),
    "WINDOWS_EC2": (*GENERAL, *FLEET),
    "MAC_ARM": ("BUILD_GENERAL1_MEDIUM", "BUILD_GENERAL1_LARGE", *FLEET),
}
"""Environment types and their compute types.

Source: botocore codebuild, AWS docs build-env-ref-compute-types.
"""
VERSIONS = ("0.1", "0.2")
PHASES = ("install", "pre_build", "build", "post_build")
DOCKER_WORDS = ("docker", "buildx", "podman", "buildah", "kaniko", "dockerd")


@rule("RH250", "a project's environment type is one that CodeBuild has")
def unknown_environment_type(template: Template) -> Iterator[Problem]:
    for project, environment in _environments(template):
        kind = text(environment.get("Type"))
        if kind is not None and kind not in COMPUTE_TYPES:
            yield Problem(
                resource=project.logical_id,
                path="Environment.Type",
                what="CodeBuild has no such environment",
                value=kind,
                allowed=", ".join(COMPUTE_TYPES),
                way_out=did_you_mean(kind, COMPUTE_TYPES, "take one of these"),
            )


@rule("RH251", "a project's compute type is one of its environment type")
def compute_type_of_another_environment(template: Template) -> Iterator[Problem]:
    for project, environment in _environments(template):
        kind, compute = text(environment.get("Type")), text(environment.get("ComputeType"))
        allowed = COMPUTE_TYPES.get(kind or "")
        if allowed is not None and compute is not None and compute not in allowed:
            yield Problem(
                resource=project.logical_id,
                path="Environment.ComputeType",
                what=f"{kind} has no such compute type",
                value=compute,
                allowed=", ".join(allowed),
                way_out="take one of these",
            )


@rule("RH252", "a GPU build runs on a GPU that TensorRT still builds for", "warning")
def gpu_too_old_for_tensorrt(template: Template) -> Iterator[Problem]:
    for project, environment in _environments(template):
        kind, compute = text(environment.get("Type")), text(environment.get("ComputeType"))
        if kind == "LINUX_GPU_CONTAINER" and compute == "BUILD_GENERAL1_LARGE":
            yield Problem(
                resource=project.logical_id,
                path="Environment.ComputeType",
                what="the machine has V100 GPUs, compute capability 7.0, which TensorRT left at 10.5",
                value=compute,
                allowed="BUILD_GENERAL1_SMALL: an A10G, 8.6",
                way_out="take that, or a fleet",
            )


@rule("RH254", "a build is privileged only to run Docker", "warning")
def privileged_without_docker(template: Template) -> Iterator[Problem]:
    for project, environment in _environments(template):
        build_spec = at(project.properties, "Source", "BuildSpec")
        privileged = boolean(environment.get("PrivilegedMode", False)) is True
        readable = isinstance(build_spec, str) and "\n" in build_spec and is_known(build_spec)
        if (
            privileged
            and readable
            and not _runs_docker(build_spec)
            and not _pushes_images(template, project)
        ):
            yield Problem(
                resource=project.logical_id,
                path="Environment.PrivilegedMode",
                what="the build is privileged, its commands name no Docker, and its role pushes no image",
                value="true",
                way_out="take it out",
            )


@rule("RH255", "a private image is pulled with the project's own role")
def image_pulled_by_codebuild(template: Template) -> Iterator[Problem]:
    for project, environment in _environments(template):
        image, credentials = (
            text(environment.get("Image")),
            environment.get("ImagePullCredentialsType", "CODEBUILD"),
        )
        if image is not None and image_name(image) is not None and text(credentials) == "CODEBUILD":
            yield Problem(
                resource=project.logical_id,
                path="Environment.ImagePullCredentialsType",
                what="CodeBuild's own role pulls the image, and a private repository refuses it",
                value="CODEBUILD",
                allowed="SERVICE_ROLE",
                way_out="write SERVICE_ROLE",
            )


@rule(
    "RH256",
    "a project without a source brings its build specification, and the specification has commands",
)
def build_without_commands(template: Template) -> Iterator[Problem]:
    for project in template.of_type(PROJECT):
        source = fields(project.properties.get("Source"))
        given = source.get("BuildSpec")
        where = partial(Problem, resource=project.logical_id, path="Source.BuildSpec")
        if text(source.get("Type")) == "NO_SOURCE" and given is None:
            yield where(what="there is no source, and no build specification", way_out="write one")
        if (
            not isinstance(given, str)
            or not is_known(given)
            or ("\n" not in given and not given.lstrip().startswith("{"))
        ):
            continue
        fault = _fault(given)
        if fault is not None:
            yield where(what=fault, way_out="write `version: 0.2` and phases with commands")


@rule("RH257", "a source and artifacts say where they are")
def source_without_location(template: Template) -> Iterator[Problem]:
    elsewhere = {
        "Source": ("NO_SOURCE", "CODEPIPELINE"),
        "Artifacts": ("NO_ARTIFACTS", "CODEPIPELINE"),
    }
    for project in template.of_type(PROJECT):
        for name, without in elsewhere.items():
            given = fields(project.properties.get(name))
            kind = text(given.get("Type"))
            if kind is not None and kind not in without and "Location" not in given:
                what = f"{name} of type {kind} says no location"
                yield Problem(
                    resource=project.logical_id,
                    path=f"{name}.Location",
                    what=what,
                    way_out="write where it is",
                )


def _environments(template: Template) -> Iterator[tuple[Resource, dict[str, Any]]]:
    for project in template.of_type(PROJECT):
        yield project, fields(project.properties.get("Environment"))


def _runs_docker(build_spec: str) -> bool:
    return any(word in build_spec.lower() for word in DOCKER_WORDS)


def _pushes_images(template: Template, project: Resource) -> bool:
    """True when the project's role may push to ECR, or is not in the template."""
    role = template.named(project.properties.get("ServiceRole"), "AWS::IAM::Role")
    if role is None:
        return True
    actions = {
        action.lower()
        for each in identity_statements(template)
        if each.resource is role and each.allows
        for action in each.actions
    }
    return bool(actions & {"*", "ecr:*", "ecr:putimage"})


def _fault(build_spec: str) -> str | None:
    if MARK in build_spec:
        return None
    try:
        document = yaml.safe_load(build_spec)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        return f"the build specification is no YAML: {' '.join(str(error).split())[:160]}"
    if not isinstance(document, dict):
        return "the build specification is no object"
    if str(document.get("version")) not in VERSIONS:
        return f"the build specification has version {document.get('version')}, and CodeBuild reads {' and '.join(VERSIONS)}"
    phases = fields(document.get("phases"))
    if not phases and "batch" not in fields(document):
        return "the build specification has no phases"
    unknown = sorted(set(phases) - set(PHASES))
    if unknown:
        return f"the build specification has phases that CodeBuild has not: {', '.join(unknown)}"
    commands = [
        items(fields(each).get("commands")) + items(fields(each).get("finally"))
        for each in phases.values()
    ]
    return "the build specification has no command" if phases and not any(commands) else None
