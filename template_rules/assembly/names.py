"""Checks of names across stacks: taken twice, missing, or of a stack that is deployed later."""

from __future__ import annotations

import re
from collections.abc import Iterator

from template_rules.assembly.alarms import ALIAS, KEY, key_of, topics_named
from template_rules.assembly.check import assembly_check
from template_rules.hosting import ENDPOINT_CONFIG, MODEL, containers
from template_rules.rules.builds import PROJECT
from template_rules.rules.network import VPC_ENDPOINT
from template_rules.state_machine import calls, sample
from template_rules.templates import Assembly, Problem, Resource
from template_rules.values import fields, is_known, known_text

LOG_GROUP, REPOSITORY, BUCKET = "AWS::Logs::LogGroup", "AWS::ECR::Repository", "AWS::S3::Bucket"
VPC_NEEDS = ("s3", "ecr.api", "ecr.dkr", "logs", "kms", "monitoring", "sts", "sagemaker.api")
"""Services that hosts and builds in a VPC without an internet gateway call."""


@assembly_check("E9610", "A name is given once in an account and region")
def name_taken(assembly: Assembly) -> Iterator[Problem]:
    seen: dict[tuple[str, str, str | None, str | None], Resource] = {}
    for template in assembly.templates:
        for resource in template.resources.values():
            if resource.arn is None or not is_known(resource.name):
                continue
            stack = template.stack
            first = seen.setdefault(
                (resource.type, resource.name, stack.account, stack.region), resource
            )
            if first is not resource:
                where = f"{first.template.file} {first.logical_id}"
                what = f"the name is taken by {where}"
                yield resource.problem("Name", what, "rename one", value=resource.name)


@assembly_check("E9611", "A build writes into a log group that a template has")
def log_group_exists(assembly: Assembly) -> Iterator[Problem]:
    for project in assembly.of_type(PROJECT):
        path = "LogsConfig.CloudWatchLogs"
        given = fields(project.at(path))
        group = given.get("GroupName", f"/aws/codebuild/{project.name}")
        if given.get("Status") == "DISABLED":
            what = "nobody can read why a build failed"
            yield project.problem(f"{path}.Status", what, "write ENABLED")
        elif assembly.find(group, LOG_GROUP) is None:
            what = "no template has the log group: CodeBuild creates it, without retention"
            way_out = "add an AWS::Logs::LogGroup of this name with RetentionInDays"
            yield project.problem(f"{path}.GroupName", what, way_out, value=group)


@assembly_check("E9612", "A key, a repository and a bucket that are named exist in a template")
def named_store_exists(assembly: Assembly) -> Iterator[Problem]:
    for resource, path, name, kind in _stores_named(assembly):
        names = assembly.names(kind)
        if names and is_known(name) and all(map(is_known, names)) and name not in names:
            own = kind in (ALIAS, BUCKET) or _account(resource) in str(resource.properties)
            if own:
                noun, allowed = kind.rsplit("::", 1)[-1], ", ".join(names)
                what = f"no template has the {noun}"
                yield resource.problem(path, what, value=name, allowed=allowed)


def _stores_named(assembly: Assembly) -> Iterator[tuple[Resource, str, str, str]]:
    """Yield (resource, path, name, type) of the stores that models, configs and builds name."""
    for config in assembly.of_type(ENDPOINT_CONFIG):
        for path in (
            "KmsKeyId",
            "DataCaptureConfig.KmsKeyId",
            "AsyncInferenceConfig.OutputConfig.KmsKeyId",
        ):
            key = known_text(config.at(path)) or ""
            if key.startswith("alias/") and not key.startswith("alias/aws/"):
                yield config, path, key, ALIAS
        for path in (
            "DataCaptureConfig.DestinationS3Uri",
            "AsyncInferenceConfig.OutputConfig.S3OutputPath",
        ):
            uri = known_text(config.at(path)) or ""
            if uri.startswith("s3://"):
                yield config, path, uri.split("/")[2], BUCKET
    yield from _model_stores(assembly)


def _model_stores(assembly: Assembly) -> Iterator[tuple[Resource, str, str, str]]:
    """Yield (resource, path, name, type) of the repositories and buckets of models and builds."""
    images = [
        (model, f"{path}.Image", container.get("Image"))
        for model in assembly.of_type(MODEL)
        for path, container in containers(model)
    ]
    images += [
        (item, "Environment.Image", item.at("Environment.Image"))
        for item in assembly.of_type(PROJECT)
    ]
    for resource, path, image in images:
        account = _account(resource)
        match = re.fullmatch(rf"{account}\.dkr\.ecr\.[^/]+/([^:@]+).*", str(image))
        if match is not None:
            yield resource, path, match[1], REPOSITORY
    for model in assembly.of_type(MODEL):
        for path, container in containers(model):
            uri = known_text(container.get("ModelDataUrl")) or ""
            if uri.startswith("s3://"):
                yield model, f"{path}.ModelDataUrl", uri.split("/")[2], BUCKET


def _account(resource: Resource) -> str:
    return resource.template.stack.account or r"\d{12}"


@assembly_check("E9613", "A stack that names another stack's resource is deployed after it")
def stack_order(assembly: Assembly) -> Iterator[Problem]:
    named = [(item, path, name, (kind,)) for item, path, name, kind in _stores_named(assembly)]
    named += [
        (item, path, topic, ("AWS::SNS::Topic",)) for item, path, topic in topics_named(assembly)
    ]
    reported = set()
    for resource, path, name, kinds in named:
        other = assembly.find(name, *kinds)
        if other is None or other.template is resource.template:
            continue
        own, needed = resource.template, other.template
        if not own.depends_on or needed.stack.name in own.depends_on or own in reported:
            continue
        reported.add(own)
        what = f"stack {own.stack.name} may be deployed before {needed.stack.name}"
        yield resource.problem(path, what, "add a dependency between the stacks", value=name)


@assembly_check("E9614", "A VPC without internet has the endpoints that hosts and builds call")
def vpc_endpoints(assembly: Assembly) -> Iterator[Problem]:
    endpoints = list(assembly.of_type(VPC_ENDPOINT))
    users = [
        resource
        for resource in assembly.of_type(MODEL, PROJECT)
        if resource.properties.get("VpcConfig") is not None
    ]
    services = {str(item.properties.get("ServiceName")).split(".", 3)[-1] for item in endpoints}
    missing = [name for name in VPC_NEEDS if name not in services]
    if len(endpoints) > 1 and users and missing:
        what = f"{users[0].logical_id} and others in the VPC cannot reach {', '.join(missing)}"
        yield endpoints[0].problem("ServiceName", what, "add VPC endpoints of these services")


@assembly_check("E9615", "Builds and models of an environment are all in its VPC")
def same_network(assembly: Assembly) -> Iterator[Problem]:
    for kind in (MODEL,):
        resources = list(assembly.of_type(kind))
        inside = [item for item in resources if item.properties.get("VpcConfig") is not None]
        for resource in resources if inside else ():
            if resource not in inside:
                what = f"{inside[0].logical_id} is in a VPC, and this is not"
                yield resource.problem("VpcConfig", what, "add the same VpcConfig")


@assembly_check("E9616", "Roles of an environment have one permissions boundary")
def same_boundary(assembly: Assembly) -> Iterator[Problem]:
    roles = list(assembly.of_type("AWS::IAM::Role"))
    boundaries = [role.properties.get("PermissionsBoundary") for role in roles]
    named = [boundary for boundary in boundaries if boundary is not None]
    for role, boundary in zip(roles, boundaries, strict=True):
        if named and boundary != named[0]:
            what, path = "other roles have another permissions boundary", "PermissionsBoundary"
            yield role.problem(path, what, "name the same", value=boundary, allowed=str(named[0]))


@assembly_check("E9617", "A project, a topic and a key that calls name exist in a template")
def called_exists(assembly: Assembly) -> Iterator[Problem]:
    kinds = {"ProjectName": PROJECT, "TopicArn": "AWS::SNS::Topic", "RoleArn": "AWS::IAM::Role"}
    for call in calls(assembly):
        for key, kind in kinds.items():
            value = sample(call.arguments.get(key))
            names = [*assembly.names(kind), *(str(item.arn) for item in assembly.of_type(kind))]
            if value is None or not names or not is_known(value):
                continue
            start = value.rstrip("*")
            found = any(
                name == value or (value != start and name.startswith(start)) for name in names
            )
            if not found:
                what = f"state {call.state}: no template has the {kind.rsplit('::', 1)[-1]}"
                yield call.machine.problem("DefinitionString", what, "name one", value=value)


@assembly_check("E9618", "A bucket's and a topic's key is one that a template has, or is given")
def store_key(assembly: Assembly) -> Iterator[Problem]:
    for alias in assembly.of_type(ALIAS):
        target = alias.properties.get("TargetKeyId")
        foreign = known_text(target) is not None and str(target).startswith("arn:")
        if key_of(assembly, target) is None and not foreign and assembly.names(KEY):
            what = "no template has the key of the alias"
            yield alias.problem("TargetKeyId", what, "name one that exists", value=target)
