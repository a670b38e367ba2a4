"""Rules of what keeps or carries data: private, encrypted, not to be overwritten."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from template_rules.finding import Problem
from template_rules.policy_view import principals, resource_statements
from template_rules.rule import rule
from template_rules.template import Resource, Template
from template_rules.values import (
    at,
    boolean,
    fields,
    is_known,
    masked,
    number,
    objects,
    shown,
    text,
)

BUCKET = "AWS::S3::Bucket"
BLOCKS = ("BlockPublicAcls", "BlockPublicPolicy", "IgnorePublicAcls", "RestrictPublicBuckets")
PUBLIC_ACLS = ("PublicRead", "PublicReadWrite", "AuthenticatedRead")
WORLD = re.compile(r"[0.:]+/0")
WEB_PORTS = (80, 443)
SECRET_WORD = re.compile(
    r"(PASSWORD|PASSWD|SECRET|PRIVATE_KEY|API_?KEY|ACCESS_KEY|(^|_)TOKEN)$", re.IGNORECASE
)
SECRET_VALUE = re.compile(
    r"AKIA[0-9A-Z]{16}|hf_[A-Za-z0-9]{20,}|ghp_[A-Za-z0-9]{30,}|-----BEGIN [A-Z ]*PRIVATE KEY-----"
)


@rule("RH230", "a bucket says how it encrypts")
def bucket_unencrypted(template: Template) -> Iterator[Problem]:
    for bucket in template.of_type(BUCKET):
        encryption = bucket.properties.get("BucketEncryption")
        rules = fields(encryption).get("ServerSideEncryptionConfiguration")
        if encryption is None or (isinstance(encryption, dict) and not rules):
            what = "the bucket says nothing of encryption, and has S3's default: a key that S3 owns"
            way_out = "write BucketEncryption with aws:kms and a key"
            yield Problem(
                resource=bucket.logical_id, path="BucketEncryption", what=what, way_out=way_out
            )


@rule("RH231", "a bucket blocks every kind of public access")
def bucket_not_blocked(template: Template) -> Iterator[Problem]:
    for bucket in template.of_type(BUCKET):
        block = bucket.properties.get("PublicAccessBlockConfiguration")
        if block is not None and not isinstance(block, dict):
            continue
        open_ones = [name for name in BLOCKS if boolean(fields(block).get(name, False)) is False]
        if open_ones:
            given = "nothing" if block is None else f"{', '.join(open_ones)} false or absent"
            default = "the bucket's template blocks no public access; only S3's default does, for buckets made since April 2023"
            what = default if block is None else "the bucket does not block public access"
            yield Problem(
                resource=bucket.logical_id,
                path="PublicAccessBlockConfiguration",
                what=what,
                value=given,
                allowed=f"{', '.join(BLOCKS)}: true",
                way_out="switch all four on",
            )


@rule("RH232", "a bucket's ACL is not public")
def bucket_public(template: Template) -> Iterator[Problem]:
    for bucket in template.of_type(BUCKET):
        acl = text(bucket.properties.get("AccessControl"))
        if acl in PUBLIC_ACLS:
            what = "the bucket's ACL lets strangers in"
            yield Problem(
                resource=bucket.logical_id,
                path="AccessControl",
                what=what,
                value=acl,
                way_out="take it out",
            )


@rule("RH233", "a policy of a resource lets nobody in whom it does not name")
def anybody_let_in(template: Template) -> Iterator[Problem]:
    for statement in resource_statements(template):
        if not statement.allows or statement.narrowed:
            continue
        for principal in principals(statement):
            if masked(principal) == "*" or re.fullmatch(r"arn:[^:]*:iam::\*:.*", masked(principal)):
                yield Problem(
                    resource=statement.resource.logical_id,
                    path=f"{statement.path}.Principal",
                    what="anybody is let in",
                    value=shown(principal),
                    way_out="name principals, or narrow it with a Condition",
                )
    for permission in template.of_type("AWS::Lambda::Permission"):
        narrowing = {
            "SourceAccount",
            "SourceArn",
            "PrincipalOrgID",
            "FunctionUrlAuthType",
            "InvokedViaFunctionUrl",
        }
        if permission.properties.get("Principal") == "*" and not narrowing & set(
            permission.properties
        ):
            what = "anybody may call the function"
            yield Problem(
                resource=permission.logical_id,
                path="Principal",
                what=what,
                value="*",
                way_out="name the service, and SourceArn",
            )


@rule(
    "RH234",
    "a bucket keeps versions, so that an archive that a lock names cannot be overwritten",
    "warning",
)
def bucket_without_versions(template: Template) -> Iterator[Problem]:
    for bucket in template.of_type(BUCKET):
        versioning = bucket.properties.get("VersioningConfiguration")
        status = at(bucket.properties, "VersioningConfiguration", "Status")
        if versioning is None or (status is not None and is_known(status) and status != "Enabled"):
            given = "nothing" if status is None else str(status)
            what = "the bucket keeps no versions"
            yield Problem(
                resource=bucket.logical_id,
                path="VersioningConfiguration.Status",
                what=what,
                value=given,
                allowed="Enabled",
                way_out="enable it",
            )


@rule("RH235", "a topic is encrypted with a key", "warning")
def topic_unencrypted(template: Template) -> Iterator[Problem]:
    for topic in template.of_type("AWS::SNS::Topic"):
        if "KmsMasterKeyId" not in topic.properties:
            yield Problem(
                resource=topic.logical_id,
                path="KmsMasterKeyId",
                what="the topic is not encrypted",
                way_out="name a key whose policy lets the publishers use it, or acknowledge why not",
            )


@rule("RH236", "a queue is encrypted")
def queue_unencrypted(template: Template) -> Iterator[Problem]:
    for queue in template.of_type("AWS::SQS::Queue"):
        if (
            boolean(queue.properties.get("SqsManagedSseEnabled", True)) is False
            and "KmsMasterKeyId" not in queue.properties
        ):
            what = "the queue is not encrypted"
            way_out = (
                "take it out: SQS encrypts with its own key by default; or name KmsMasterKeyId"
            )
            yield Problem(
                resource=queue.logical_id,
                path="SqsManagedSseEnabled",
                what=what,
                value="false",
                way_out=way_out,
            )


@rule(
    "RH237",
    "an image repository has tags that are never moved, and scans what is pushed",
    "warning",
)
def repository_mutable(template: Template) -> Iterator[Problem]:
    for repository in template.of_type("AWS::ECR::Repository"):
        mutability = repository.properties.get("ImageTagMutability", "MUTABLE")
        if text(mutability) == "MUTABLE":
            what = "a tag can be moved to another image"
            yield _of(repository, "ImageTagMutability", what, "MUTABLE", "IMMUTABLE")
        scans = at(repository.properties, "ImageScanningConfiguration", "ScanOnPush")
        if scans is None or boolean(scans) is False:
            what = "images are not scanned when they are pushed"
            yield _of(
                repository,
                "ImageScanningConfiguration.ScanOnPush",
                what,
                "nothing" if scans is None else "false",
                "true",
            )


@rule("RH238", "a key rotates", "warning")
def key_without_rotation(template: Template) -> Iterator[Problem]:
    for key in template.of_type("AWS::KMS::Key"):
        symmetric = text(key.properties.get("KeySpec", "SYMMETRIC_DEFAULT")) == "SYMMETRIC_DEFAULT"
        if symmetric and boolean(key.properties.get("EnableKeyRotation", False)) is False:
            yield _of(key, "EnableKeyRotation", "the key does not rotate", "false", "true")


@rule("RH239", "no security group lets the whole world in")
def world_let_in(template: Template) -> Iterator[Problem]:
    held = [
        (group, f"SecurityGroupIngress[{index}]", each)
        for group in template.of_type("AWS::EC2::SecurityGroup")
        for index, each in objects(group.properties.get("SecurityGroupIngress"))
    ]
    alone = [
        (each, "", each.properties) for each in template.of_type("AWS::EC2::SecurityGroupIngress")
    ]
    for resource, path, each in (*held, *alone):
        for key in ("CidrIp", "CidrIpv6"):
            if WORLD.fullmatch(text(each.get(key)) or "") is None:
                continue
            served = (
                number(each.get("FromPort")) == number(each.get("ToPort"))
                and number(each.get("ToPort")) in WEB_PORTS
            )
            yield Problem(
                resource=resource.logical_id,
                path=path or key,
                what="the whole world may reach it",
                value=f"{each[key]} on {_ports(each)}",
                way_out="name a network or a security group",
                severity="warning" if served else None,
            )


def _ports(rule: Mapping[str, object]) -> str:
    first, last = number(rule.get("FromPort")), number(rule.get("ToPort"))
    if text(rule.get("IpProtocol")) == "-1":
        return "every port"
    if first is None or last is None:
        return f"ports {shown(rule.get('FromPort'))} to {shown(rule.get('ToPort'))}"
    return f"port {first:g}" if first == last else f"ports {first:g} to {last:g}"


@rule("RH240", "no secret stands in a template as plain text")
def secret_in_plain_text(template: Template) -> Iterator[Problem]:
    for resource, path, name, value in _variables(template):
        if not isinstance(value, str) or not is_known(value) or not value:
            continue
        if SECRET_VALUE.search(value) or (
            SECRET_WORD.search(name)
            and len(value) >= 8
            and not value.startswith(("arn:", "/", "s3://"))
        ):
            what = f"variable {name} looks like a secret, and whoever reads the template reads it"
            way_out = "keep it in Secrets Manager or Parameter Store"
            yield Problem(
                resource=resource.logical_id,
                path=path,
                what=what,
                value=f"{value[:4]}…",
                way_out=way_out,
            )


def _variables(template: Template) -> Iterator[tuple[Resource, str, str, object]]:
    for model in template.of_type("AWS::SageMaker::Model"):
        held = [("PrimaryContainer", fields(model.properties.get("PrimaryContainer")))]
        held += [
            (f"Containers[{index}]", each)
            for index, each in objects(model.properties.get("Containers"))
        ]
        for path, container in held:
            for name, value in fields(container.get("Environment")).items():
                yield model, f"{path}.Environment.{name}", name, value
    for project in template.of_type("AWS::CodeBuild::Project"):
        variables = at(project.properties, "Environment", "EnvironmentVariables")
        for index, each in objects(variables):
            if text(each.get("Type", "PLAINTEXT")) == "PLAINTEXT":
                path = f"Environment.EnvironmentVariables[{index}].Value"
                yield project, path, str(each.get("Name")), each.get("Value")
    for function in template.of_type("AWS::Lambda::Function"):
        for name, value in fields(at(function.properties, "Environment", "Variables")).items():
            yield function, f"Environment.Variables.{name}", name, value


def _of(resource: Resource, path: str, what: str, value: str, allowed: str) -> Problem:
    return Problem(
        resource=resource.logical_id,
        path=path,
        what=what,
        value=value,
        allowed=allowed,
        way_out=f"write {allowed}",
    )
