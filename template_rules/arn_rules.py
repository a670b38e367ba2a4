"""Rules of ARNs: of one partition, of this stack's account, and there where a name will not do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from template_rules.finding import Problem
from template_rules.rule import rule
from template_rules.template import Template
from template_rules.values import is_known, labels, masked, objects, shown, text, unknown

ARN = re.compile(r"arn:([a-z-]+):([a-z0-9-]+):([a-z0-9-]*):([0-9]*):")
PARTITIONS = {
    "cn-": "aws-cn",
    "us-gov-": "aws-us-gov",
    "us-iso-": "aws-iso",
    "us-isob-": "aws-iso-b",
    "eusc-": "aws-eusc",
}
REGION = re.compile(r"[a-z]{2,4}(-[a-z]+)+-\d")
ROLES = {
    "AWS::SageMaker::Model": "ExecutionRoleArn",
    "AWS::SageMaker::EndpointConfig": "ExecutionRoleArn",
    "AWS::StepFunctions::StateMachine": "RoleArn",
    "AWS::Lambda::Function": "Role",
}
"""Where a role's ARN stands; CodeBuild takes a role's name, too."""


@rule("RH040", "an ARN is of one partition: the one of its region, and of this stack's")
def mixed_partition(template: Template) -> Iterator[Problem]:
    own = _partition(template.stack.region)
    for resource in template.resources.values():
        seen = set()
        for path, value in _texts(dict(resource.properties), ""):
            match = ARN.match(value) if value.startswith("arn:") else None
            if match is None or match[1] in seen:
                continue
            needed = _partition(match[3]) or own
            if needed is not None and match[1] != needed:
                seen.add(match[1])
                what = f"the ARN is of another partition than region {match[3] or template.stack.region}"
                yield Problem(
                    resource=resource.logical_id,
                    path=path,
                    what=what,
                    value=shown(value),
                    allowed=f"arn:{needed}:...",
                    way_out="write ${AWS::Partition}",
                )


@rule(
    "RH041", "a role that a service is to use is named by its ARN, and of this stack's own account"
)
def role_by_name(template: Template) -> Iterator[Problem]:
    for resource in template.of_type(*ROLES):
        path = ROLES[resource.type]
        value = resource.properties.get(path)
        role = template.named(value, "AWS::IAM::Role")
        account = template.stack.account
        named = text(value)
        match = None if named is None else re.match(r"arn:[^:]*:iam::(\d{12}):role/", named)
        if role is not None and (
            value in (role.name, unknown(role.logical_id))
            or labels(value) == (f"{role.logical_id}.RoleName",)
        ):
            what, way_out = (
                "Ref of a role is its name, and an ARN is needed",
                f"write Fn::GetAtt [{role.logical_id}, Arn]",
            )
            yield Problem(
                resource=resource.logical_id,
                path=path,
                what=what,
                value=shown(value),
                way_out=way_out,
            )
        elif (
            named is not None
            and named != ""
            and not named.startswith("arn:")
            and named not in template.defaults
        ):
            what = "the role is named by no ARN"
            allowed = "arn:aws:iam::account:role/name"
            yield Problem(
                resource=resource.logical_id,
                path=path,
                what=what,
                value=named,
                allowed=allowed,
                way_out="write its ARN",
            )
        elif match is not None and account is not None and match[1] != account:
            what = "the role is another account's, and no service takes that"
            way_out = "name a role of this account that may assume the other"
            yield Problem(
                resource=resource.logical_id,
                path=path,
                what=what,
                value=shown(value),
                allowed=account,
                way_out=way_out,
            )


@rule(
    "RH274", "what an event rule calls is named by its ARN, with a role where the service needs one"
)
def ill_formed_target(template: Template) -> Iterator[Problem]:
    for each in template.of_type("AWS::Events::Rule"):
        for index, target in objects(each.properties.get("Targets")):
            arn, path = target.get("Arn"), f"Targets[{index}]"
            function = template.named(arn, "AWS::Lambda::Function", "AWS::CodeBuild::Project")
            called = template.named(arn, *(NEEDING_A_ROLE))
            known = text(arn)
            if function is not None and arn in (function.name, unknown(function.logical_id)):
                what = f"Ref {function.logical_id} is a name, and an ARN is needed"
                way_out = f"write Fn::GetAtt [{function.logical_id}, Arn]"
                yield Problem(
                    resource=each.logical_id, path=f"{path}.Arn", what=what, way_out=way_out
                )
            elif (
                known is not None
                and known not in template.defaults
                and not known.startswith("arn:")
            ):
                what = "the target is named by no ARN"
                yield Problem(
                    resource=each.logical_id,
                    path=f"{path}.Arn",
                    what=what,
                    value=known,
                    way_out="write its ARN",
                )
            service = (
                masked(arn).split(":")[2]
                if isinstance(arn, str) and masked(arn).count(":") > 4 and is_known(arn[:20])
                else ""
            )
            if "RoleArn" not in target and (
                called is not None or service in ("states", "codebuild", "kinesis", "ecs", "batch")
            ):
                what = "EventBridge needs a role to call the target"
                yield Problem(
                    resource=each.logical_id,
                    path=f"{path}.RoleArn",
                    what=what,
                    value=shown(arn),
                    way_out="name one",
                )


NEEDING_A_ROLE = (
    "AWS::StepFunctions::StateMachine",
    "AWS::CodeBuild::Project",
    "AWS::Kinesis::Stream",
    "AWS::ECS::Cluster",
    "AWS::Batch::JobQueue",
)


@rule("RH275", "a function lets the rules call it that name it", "warning")
def function_not_callable(template: Template) -> Iterator[Problem]:
    permissions = list(template.of_type("AWS::Lambda::Permission"))
    if template.transforms or any("Condition" in each.raw for each in permissions):
        return
    callable_by_rules = [
        each.properties.get("FunctionName")
        for each in permissions
        if not is_known(each.properties.get("Principal"))
        or each.properties.get("Principal") in ("events.amazonaws.com", "*")
    ]
    allowed = [template.named(name, "AWS::Lambda::Function") for name in callable_by_rules]
    if any(role is None for role in allowed):
        return
    for each in template.of_type("AWS::Events::Rule"):
        for index, target in objects(each.properties.get("Targets")):
            function = template.named(target.get("Arn"), "AWS::Lambda::Function")
            if (
                function is not None
                and "RoleArn" not in target
                and not any(other is function for other in allowed)
            ):
                what = f"no permission lets EventBridge call function {function.logical_id}"
                way_out = (
                    "write an AWS::Lambda::Permission for events.amazonaws.com with the rule's ARN"
                )
                yield Problem(
                    resource=each.logical_id,
                    path=f"Targets[{index}].Arn",
                    what=what,
                    way_out=way_out,
                )


def _partition(region: str | None) -> str | None:
    if region is None or REGION.fullmatch(region) is None:
        return None
    return next(
        (partition for start, partition in PARTITIONS.items() if region.startswith(start)), "aws"
    )


def _texts(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from _texts(each, f"{path}[{index}]")
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from _texts(each, f"{path}.{key}" if path else str(key))
