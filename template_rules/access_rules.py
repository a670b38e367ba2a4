"""Rules of who may use what: services their roles, models their data, owners their keys, alarms
their topic.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from template_rules.finding import Problem
from template_rules.hosting import MODEL, containers
from template_rules.policy_view import (
    Statement,
    identity_statements,
    principals,
    resource_statements,
    trust_statements,
)
from template_rules.rule import rule
from template_rules.serving_images import URI
from template_rules.template import Resource, Template
from template_rules.values import (
    MARK,
    boolean,
    is_known,
    is_wholly_unknown,
    labels,
    masked,
    shown,
    text,
)

USERS = {
    "AWS::SageMaker::Model": ("ExecutionRoleArn", "sagemaker"),
    "AWS::CodeBuild::Project": ("ServiceRole", "codebuild"),
    "AWS::StepFunctions::StateMachine": ("RoleArn", "states"),
    "AWS::Lambda::Function": ("Role", "lambda"),
}
LOCKED_OUT = ("kms:*", "*", "kms:putkeypolicy")
WAYS = ("AlarmActions", "OKActions", "InsufficientDataActions")
CLOUDWATCH = "cloudwatch.amazonaws.com"


@rule("RH246", "a role lets the service assume it that is to use it")
def service_not_trusted(template: Template) -> Iterator[Problem]:
    for resource in template.of_type(*USERS):
        path, service = USERS[resource.type]
        role = template.named(resource.properties.get(path), "AWS::IAM::Role")
        trusting = [
            each for each in trust_statements(template) if each.resource is role and each.allows
        ]
        given = [principal for each in trusting for principal in principals(each)]
        if (
            role is None
            or not given
            or any(not is_known(each) for each in given)
            or any("NotPrincipal" in each.content for each in trusting)
        ):
            continue
        if not any(
            each == "*" or re.fullmatch(rf"{service}(\.[a-z0-9-]+)?\.amazonaws\.com(\.cn)?", each)
            for each in given
        ):
            what = f"role {role.logical_id} does not let {service} assume it"
            allowed, way_out = (
                f"{service}.amazonaws.com",
                "name it as Principal of AssumeRolePolicyDocument",
            )
            value = ", ".join(map(shown, given))
            yield Problem(
                resource=resource.logical_id,
                path=path,
                what=what,
                value=value,
                allowed=allowed,
                way_out=way_out,
            )


@rule("RH114", "a model's role may read the model's archive and pull its image")
def role_without_access(template: Template) -> Iterator[Problem]:
    for model in template.of_type(MODEL):
        role = template.named(model.properties.get("ExecutionRoleArn"), "AWS::IAM::Role")
        if role is None or "ManagedPolicyArns" in role.properties:
            continue
        for path, container in containers(model):
            data, image = text(container.get("ModelDataUrl")), text(container.get("Image"))
            match = None if image is None else URI.fullmatch(image)
            wanted = []
            if data is not None and data.startswith("s3://"):
                wanted.append(
                    (
                        f"{path}.ModelDataUrl",
                        "s3:GetObject",
                        f"s3:::{data.removeprefix('s3://')}",
                        data,
                    )
                )
            if image is not None and match is not None:
                region = image.split(".")[3]
                arn = f"ecr:{region}:{match['account']}:repository/{match['repository']}"
                wanted.append((f"{path}.Image", "ecr:BatchGetImage", arn, image))
            for place, action, arn, value in wanted:
                if _refused(template, role, action, arn):
                    what = f"role {role.logical_id} has {action}, but not for this"
                    yield Problem(
                        resource=model.logical_id,
                        path=place,
                        what=what,
                        value=value,
                        way_out=f"allow it on arn:aws:{arn}",
                    )


@rule("RH247", "somebody of this account may still change a key's policy")
def key_without_owner(template: Template) -> Iterator[Problem]:
    account = template.stack.account
    for key in template.of_type("AWS::KMS::Key"):
        policy = key.properties.get("KeyPolicy")
        if (
            not isinstance(policy, dict)
            or boolean(key.properties.get("BypassPolicyLockoutSafetyCheck", False)) is not False
        ):
            continue
        statements = [each for each in resource_statements(template) if each.resource is key]
        if not isinstance(policy.get("Statement"), list | dict):
            continue
        if not any(
            each.allows or not is_known(each.content.get("Effect"))
            for each in statements
            if _manages(each, account)
        ):
            what = "nobody may change the key's policy any more, and CreateKey refuses it"
            way_out = "allow kms:* to arn:aws:iam::<account>:root of this account"
            yield Problem(
                resource=key.logical_id, path="KeyPolicy.Statement", what=what, way_out=way_out
            )


@rule("RH248", "a policy of a resource denies nobody everything, and is about that resource")
def policy_of_another_resource(template: Template) -> Iterator[Problem]:
    first: dict[str, Resource] = {}
    for policy in template.of_type("AWS::S3::BucketPolicy"):
        given = policy.properties.get("Bucket")
        bucket = template.named(given, "AWS::S3::Bucket")
        if not isinstance(given, str) or policy.raw.get("Condition") is not None:
            continue
        before = first.setdefault(given if bucket is None else bucket.logical_id, policy)
        if before is not policy:
            what = f"{before.logical_id} is of the same bucket, which has one policy"
            yield Problem(
                resource=policy.logical_id,
                path="Bucket",
                what=what,
                value=shown(given),
                way_out="write one policy",
            )
        name = given if bucket is None else bucket.name
        for statement in (
            each for each in resource_statements(template) if each.resource is policy
        ):
            for resource in statement.resources:
                match = re.fullmatch(r"arn:[^:]*:s3:::([^/*?]+)(/.*)?", resource)
                if match is not None and is_known(match[1]) and is_known(name) and match[1] != name:
                    what = f"the policy is of bucket {name}, and S3 refuses another's"
                    place = f"{statement.path}.Resource"
                    yield Problem(
                        resource=policy.logical_id,
                        path=place,
                        what=what,
                        value=shown(resource),
                        way_out="name this bucket",
                    )
    for topics in template.of_type("AWS::SNS::TopicPolicy"):
        names = [
            topic.name if topic is not None else each for each, topic in _topics(template, topics)
        ]
        for statement in (
            each for each in resource_statements(template) if each.resource is topics
        ):
            known = [
                each
                for each in statement.resources
                if each.startswith("arn:") and is_known(each) and "*" not in each
            ]
            for resource in known if names and all(map(is_known, names)) else ():
                if resource.rsplit(":", 1)[-1] not in [each.rsplit(":", 1)[-1] for each in names]:
                    what, place = (
                        f"the policy is of topic {', '.join(names)}",
                        f"{statement.path}.Resource",
                    )
                    yield Problem(
                        resource=topics.logical_id,
                        path=place,
                        what=what,
                        value=resource,
                        way_out="name that topic",
                    )
    for statement in resource_statements(template):
        everybody = any(each == "*" for each in principals(statement))
        everything = any(
            action in ("*", "s3:*", "sns:*", "sqs:*", "kms:*", "ecr:*")
            for action in statement.actions
        )
        if (
            text(statement.content.get("Effect")) == "Deny"
            and everybody
            and everything
            and not statement.narrowed
        ):
            what = "everybody is denied everything, the stack itself too"
            way_out = "narrow it with a Condition, such as aws:SecureTransport false"
            yield Problem(
                resource=statement.resource.logical_id,
                path=statement.path,
                what=what,
                way_out=way_out,
            )


@rule("RH249", "an alarm may reach the topic that it tells: by its policy, and by its key's")
def alarm_lost_at_topic(template: Template) -> Iterator[Problem]:
    told = {
        topic.logical_id: topic
        for alarm in template.of_type("AWS::CloudWatch::Alarm", "AWS::CloudWatch::CompositeAlarm")
        for way in WAYS
        for action in _texts(alarm.properties.get(way))
        if (topic := template.named(action, "AWS::SNS::Topic")) is not None
    }
    for topic in told.values():
        key_name = topic.properties.get("KmsMasterKeyId")
        where = f"{topic.logical_id} is told by alarms, and"
        if text(key_name) in ("alias/aws/sns", "aws/sns"):
            what, way_out = (
                f"{where} CloudWatch may not use SNS's own key: alarms are lost",
                "name a key of yours that lets it",
            )
            yield Problem(
                resource=topic.logical_id,
                path="KmsMasterKeyId",
                what=what,
                value=shown(key_name),
                way_out=way_out,
            )
        policies = [
            policy
            for policy in template.of_type("AWS::SNS::TopicPolicy")
            if any(each is topic for _, each in _topics(template, policy))
        ]
        given = [
            each
            for each in resource_statements(template)
            if each.resource in policies and each.allows
        ]
        others = [
            each
            for each in given
            if all(is_known(who) and who.endswith(".amazonaws.com") for who in principals(each))
        ]
        if (
            policies
            and len(given) == len(others)
            and not any(_lets_cloudwatch(each, "sns:") for each in given)
        ):
            what = f"{where} its policy does not let CloudWatch publish: alarms are lost"
            way_out = f"allow sns:Publish to {CLOUDWATCH} with aws:SourceAccount"
            yield Problem(resource=topic.logical_id, path="TopicName", what=what, way_out=way_out)
        key = template.named(key_name, "AWS::KMS::Key")
        if key is not None and isinstance(key.properties.get("KeyPolicy"), dict):
            allowing = [
                each
                for each in resource_statements(template)
                if each.resource is key and each.allows
            ]
            if not any(_lets_cloudwatch(each, "kms:") for each in allowing):
                what = (
                    f"{where} key {key.logical_id} does not let CloudWatch use it: alarms are lost"
                )
                way_out = f"allow kms:Decrypt and kms:GenerateDataKey* to {CLOUDWATCH} in the key's policy"
                yield Problem(
                    resource=topic.logical_id, path="KmsMasterKeyId", what=what, way_out=way_out
                )


def _topics(template: Template, policy: Resource) -> list[tuple[str, Resource | None]]:
    return [
        (each, template.named(each, "AWS::SNS::Topic"))
        for each in _texts(policy.properties.get("Topics"))
    ]


def _lets_cloudwatch(statement: Statement, service: str) -> bool:
    given = principals(statement)
    who = any(
        not is_known(each) or each in ("*", CLOUDWATCH) for each in given
    ) and not _is_own_root(given)
    return who and any(
        action == "*" or action.lower().startswith(service) for action in statement.actions
    )


def _is_own_root(given: tuple[str, ...]) -> bool:
    """True for the account itself, which delegates to its identities and not to services."""
    return all(
        re.fullmatch(r"arn:[^:]*:iam::.*:(root|role/.*|user/.*)", masked(each)) is not None
        for each in given
    )


def _manages(statement: Statement, account: str | None) -> bool:
    """True for a statement that may let somebody of this account change the key's policy; unknown
    ones may.
    """
    given = principals(statement)
    if not all(is_known(each) for each in given) or not given:
        own = True
    else:
        accounts = {
            match[1] for each in given if (match := re.match(r"arn:[^:]*:iam::(\d{12}):", each))
        } | set(given)
        people = [
            each for each in given if not each.endswith((".amazonaws.com", ".amazonaws.com.cn"))
        ]
        own = bool(people) and (account is None or account in accounts or "*" in given)
    actions = [action.lower() for action in statement.actions]
    unclear = "NotAction" in statement.content or not isinstance(
        statement.content.get("Action"), str | list
    )
    matching = [
        action
        for action in actions
        if action in LOCKED_OUT
        or (action.endswith("*") and "kms:putkeypolicy".startswith(action[:-1]))
    ]
    return own and (unclear or not actions or bool(matching))


def _refused(template: Template, role: Resource, action: str, arn: str) -> bool:
    """True when a role has the action, and only on other things that are wholly known."""
    granted: list[str] = []
    for statement in identity_statements(template):
        attached = statement.resource is not role
        if attached and not _attached(statement.resource, role):
            continue
        if not statement.allows or not any(_covers(each, action) for each in statement.actions):
            continue
        if (
            not isinstance(statement.content.get("Resource"), str | list)
            or len(statement.resources) == 0
        ):
            return False
        granted += statement.resources
    if not granted or any(MARK in each and not _is_partition_only(each) for each in granted):
        return False
    return not any(
        _covers(masked(each).split(":", 2)[-1], arn) if each != "*" else True for each in granted
    )


def _attached(policy: Resource, role: Resource) -> bool:
    roles = policy.properties.get("Roles")
    return any(
        is_wholly_unknown(each) or each == role.name or role.logical_id in labels(each)
        for each in _texts(roles)
    )


def _is_partition_only(arn: str) -> bool:
    return labels(arn) == ("AWS::Partition",)


def _covers(pattern: str, name: str) -> bool:
    """True when a pattern with * and ? covers a name; a prefix covers what lies under it, and the
    other way round.
    """
    if name.endswith("/") and pattern.startswith(name):
        return True
    wild = re.escape(pattern).replace(r"\*", ".*").replace(r"\?", ".")
    return re.fullmatch(wild, name, re.IGNORECASE) is not None


def _texts(value: object) -> list[str]:
    given = value if isinstance(value, list) else [value]
    return [each for each in given if isinstance(each, str)]
