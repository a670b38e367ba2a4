"""Checks of names across stacks: taken twice, missing, or of a stack that is deployed later."""

from __future__ import annotations

from collections.abc import Iterator

from template_rules.assembly.alarms import topics_named
from template_rules.assembly.check import assembly_check
from template_rules.hosting import MODEL, containers
from template_rules.rules.builds import PROJECT
from template_rules.rules.network import VPC_ENDPOINT
from template_rules.state_machine import calls, sample
from template_rules.templates import Assembly, Problem
from template_rules.values import is_known

VPC_NEEDS = ("s3", "ecr.api", "ecr.dkr", "logs", "kms", "monitoring", "sts", "sagemaker.api")
"""Services that hosts and builds in a VPC without an internet gateway call."""


@assembly_check("E9613", "A stack that names another stack's topic or bucket is deployed after it")
def stack_order(assembly: Assembly) -> Iterator[Problem]:
    named = [(item, path, topic) for item, path, topic in topics_named(assembly)]
    for model in assembly.of_type(MODEL):
        for path, container in containers(model):
            bucket = str(container.get("ModelDataUrl")).removeprefix("s3://").split("/")[0]
            named.append((model, path, bucket))
    reported = set()
    for resource, path, name in named:
        other = assembly.find(name, "AWS::SNS::Topic", "AWS::S3::Bucket")
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
