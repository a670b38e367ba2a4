"""Rules of a template as a whole: its resources, its size, its names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from onboarding.nearest import nearest
from template_rules.catalogue import attributes, name_property
from template_rules.finding import Problem
from template_rules.rule import rule, together_rule
from template_rules.template import SAM, Resource, Template
from template_rules.values import fields, is_known, shown

LOGICAL_ID = re.compile(r"[A-Za-z0-9]{1,255}")
MOST = {"Resources": 500, "Parameters": 200, "Outputs": 200, "Mappings": 200}
LARGEST_BYTES = 2**20
OTHERS = ("Custom::", "AWS::Serverless::", "AWS::CDK::", "Alexa::")
NAMED_ALONE = """
AWS::SageMaker::Endpoint AWS::SageMaker::EndpointConfig AWS::SageMaker::Model AWS::SageMaker::InferenceComponent AWS::S3::Bucket
AWS::IAM::Role AWS::IAM::ManagedPolicy AWS::CloudWatch::Alarm AWS::CloudWatch::CompositeAlarm AWS::CloudWatch::Dashboard
AWS::CodeBuild::Project AWS::StepFunctions::StateMachine AWS::ECR::Repository AWS::SNS::Topic AWS::SQS::Queue AWS::KMS::Alias
AWS::Lambda::Function AWS::SSM::Parameter AWS::Logs::LogGroup
"""
"""Types of which an account and region hold one by each name."""


@rule("RH010", "every resource is an object with a Type, under a logical id of letters and digits")
def ill_formed_resource(template: Template) -> Iterator[Problem]:
    resources = template.document.get("Resources")
    if not isinstance(resources, dict) or not resources:
        what = "the template has no resource, and a deployment deletes what the stack holds now"
        if resources is not None and not isinstance(resources, dict):
            yield Problem(
                path="Resources",
                what="Resources is no object of resources",
                way_out="write logical ids, each with a Type",
            )
            return
        yield Problem(
            path="Resources", what=what, way_out="write one under Resources", severity="warning"
        )
        return
    for logical_id, resource in resources.items():
        if str(logical_id).startswith("Fn::"):
            continue
        if not LOGICAL_ID.fullmatch(str(logical_id)):
            allowed = "letters and digits, at most 255"
            yield Problem(
                resource=str(logical_id),
                what="the logical id has another character",
                allowed=allowed,
                way_out="rename it",
            )
        if isinstance(resource, dict) and "Fn::Transform" in resource:
            continue
        if not isinstance(resource, dict) or not isinstance(resource.get("Type"), str | dict):
            yield Problem(
                resource=str(logical_id),
                path="Type",
                what="the resource has no Type",
                way_out="write its type",
            )


@rule("RH011", "every resource type is one that CloudFormation knows")
def unknown_type(template: Template) -> Iterator[Problem]:
    serverless = [
        each for each in template.resources.values() if each.type.startswith("AWS::Serverless::")
    ]
    if serverless and "Transform" not in template.document and not template.macros:
        what = "the type is the Serverless Application Model's, and the template does not say so"
        yield Problem(
            resource=serverless[0].logical_id,
            path="Type",
            what=what,
            value=serverless[0].type,
            way_out=f"write Transform: {SAM}",
        )
    for resource in template.resources.values():
        known = attributes()
        ours = (
            not resource.type.startswith("AWS::")
            or resource.type.startswith(OTHERS)
            or resource.type.endswith("::MODULE")
        )
        if template.macros or (ours and "::" in resource.type) or resource.type in known:
            continue
        match = nearest(resource.type, known)
        close = (
            match is not None
            and match.lower().rsplit("::", 1)[0] == resource.type.lower().rsplit("::", 1)[0]
        )
        yield Problem(
            resource=resource.logical_id,
            path="Type",
            what="the resource type is not known",
            value=resource.type,
            way_out=f"did you mean {match}?"
            if close
            else "look it up; a newer type is learnt by `python -m roundhouse.templates.data`",
            severity="error" if close or "::" not in resource.type else "warning",
        )


@rule("RH012", "a template keeps CloudFormation's limits of size and number")
def too_large(template: Template) -> Iterator[Problem]:
    if template.size_bytes > LARGEST_BYTES:
        allowed = f"{LARGEST_BYTES} bytes"
        yield Problem(
            what="the template is too large",
            value=f"{template.size_bytes} bytes",
            allowed=allowed,
            way_out="split the stack",
        )
    for section, most in MOST.items():
        count = len(fields(template.document.get(section)))
        if count > most:
            given, allowed = f"{count} entries", f"at most {most}"
            yield Problem(
                path=section,
                what=f"{section} has too many entries",
                value=given,
                allowed=allowed,
                way_out="split the stack",
            )


@rule("RH013", "no two resources of a template have one name in AWS")
def same_name(template: Template) -> Iterator[Problem]:
    first: dict[tuple[str, str], Resource] = {}
    for resource in template.of_type(*NAMED_ALONE.split()):
        if not is_known(resource.name):
            continue
        before = first.setdefault((resource.type, resource.name), resource)
        exclusive = "Condition" in resource.raw and "Condition" in before.raw
        if before is not resource and not exclusive:
            yield _taken(resource, f"{before.logical_id} has")


@together_rule("RH014", "no two stacks of an account and region hold one name")
def same_name_in_two_stacks(templates: Sequence[Template]) -> Iterator[tuple[Template, Problem]]:
    first: dict[tuple[str | None, ...], Template] = {}
    for template in templates:
        if template.stack.account is None or template.stack.region is None:
            continue
        for resource in template.of_type(*NAMED_ALONE.split()):
            if is_known(resource.name):
                place = (
                    template.stack.account,
                    template.stack.region,
                    resource.type,
                    resource.name,
                )
                before = first.setdefault(place, template)
                if before is not template:
                    yield template, _taken(resource, f"stack {before.stack.name} has")


def _taken(resource: Resource, by: str) -> Problem:
    named = name_property(resource.type) or ""
    noun = resource.type.rsplit("::", 1)[-1]
    return Problem(
        resource=resource.logical_id,
        path=named,
        what=f"{by} the same {noun} name",
        value=shown(resource.name),
        way_out="give each a name of its own",
    )


@rule("RH015", "what keeps data survives its stack: DeletionPolicy Retain or Snapshot", "warning")
def data_goes_with_the_stack(template: Template) -> Iterator[Problem]:
    for resource in template.of_type(
        "AWS::S3::Bucket", "AWS::KMS::Key", "AWS::ECR::Repository", "AWS::DynamoDB::Table"
    ):
        for policy in ("DeletionPolicy", "UpdateReplacePolicy"):
            if resource.raw.get(policy, "Delete") == "Delete":
                yield Problem(
                    resource=resource.logical_id,
                    path=policy,
                    what=f"a {resource.type.rsplit('::', 1)[-1]} is deleted with its stack",
                    value=str(resource.raw.get(policy, "nothing, which is Delete")),
                    allowed="Retain, RetainExceptOnCreate",
                    way_out=f"write {policy}: Retain",
                )
