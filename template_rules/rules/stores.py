"""Rules of what keeps data: deletion policies, encryption, TLS, public access, lifecycles, logs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from template_rules.hosting import MODEL, containers
from template_rules.policies import resource_statements
from template_rules.rule import resource_rule, rule
from template_rules.templates import Assembly, Finding, Resource
from template_rules.values import at, boolean, fields, known_text, objects, texts

BUCKET, TOPIC, KEY = "AWS::S3::Bucket", "AWS::SNS::Topic", "AWS::KMS::Key"
REPOSITORY, LOG_GROUP = "AWS::ECR::Repository", "AWS::Logs::LogGroup"
STATEFUL = (BUCKET, KEY, REPOSITORY)
BLOCKS = ("BlockPublicAcls", "BlockPublicPolicy", "IgnorePublicAcls", "RestrictPublicBuckets")
SECRET_NAME = re.compile(r"(PASSWORD|PASSWD|SECRET|PRIVATE_KEY|API_?KEY|(^|_)TOKEN)$", re.I)
SECRET_VALUE = re.compile(r"AKIA[0-9A-Z]{16}|hf_[A-Za-z0-9]{20,}|ghp_[A-Za-z0-9]{30,}")


@rule("E9400", "Stateful resource without a deletion policy that keeps it")
def deletion_policy(assembly: Assembly) -> Iterator[Finding]:
    """A stateful resource is kept when its stack or its logical id goes."""
    allowed = {
        "DeletionPolicy": ("Retain", "RetainExceptOnCreate"),
        "UpdateReplacePolicy": ("Retain",),
    }
    for resource in assembly.of_type(*STATEFUL):
        for key, values in allowed.items():
            given = resource.raw.get(key)
            if given not in values:
                what = "CloudFormation deletes the resource with its data"
                yield resource.problem(key, what, f"write {key}: {values[-1]}", value=given)


@rule("E9401", "Store without a customer managed key, or a key without rotation")
def store_encryption(assembly: Assembly) -> Iterator[Finding]:
    """Buckets and topics are encrypted with a customer managed key that rotates."""
    for bucket in assembly.of_type(BUCKET):
        rules = list(objects(bucket.at("BucketEncryption.ServerSideEncryptionConfiguration")))
        defaults = [fields(rule.get("ServerSideEncryptionByDefault")) for _, rule in rules]
        named = [default.get("KMSMasterKeyID") for default in defaults]
        if not named or any(key is None or "alias/aws/" in str(key) for key in named):
            what = "the bucket is not encrypted with a key of yours"
            yield bucket.problem("BucketEncryption", what, "write aws:kms and KMSMasterKeyID")
    for store in assembly.of_type(TOPIC):
        key = store.properties.get("KmsMasterKeyId")
        if key is None or "alias/aws/" in str(key) or str(key).startswith("aws/"):
            what = "services cannot publish through a key of AWS, and data has no key of yours"
            way_out = "name a key whose policy lets the publishers use it"
            yield store.problem("KmsMasterKeyId", what, way_out, value=key)
    for key in assembly.of_type(KEY):
        symmetric = key.properties.get("KeySpec", "SYMMETRIC_DEFAULT") == "SYMMETRIC_DEFAULT"
        if symmetric and boolean(key.properties.get("EnableKeyRotation", False)) is False:
            yield key.problem("EnableKeyRotation", "the key does not rotate", "write true")


@resource_rule("E9402", "Bucket that is open to the public, or without versions", BUCKET)
def bucket_access(bucket: Resource) -> Iterator[Finding]:
    """A bucket blocks every kind of public access, and keeps versions."""
    block = bucket.properties.get("PublicAccessBlockConfiguration")
    open_blocks = [name for name in BLOCKS if not boolean(fields(block).get(name, False))]
    if open_blocks and (block is None or isinstance(block, dict)):
        path, value = "PublicAccessBlockConfiguration", ", ".join(open_blocks)
        what = "the bucket does not block public access"
        yield bucket.problem(path, what, "set all four to true", value=value)
    acl = known_text(bucket.properties.get("AccessControl")) or ""
    if acl.startswith(("Public", "Authenticated")):
        yield bucket.problem("AccessControl", "the bucket's ACL is public", "remove it", value=acl)
    status = bucket.at("VersioningConfiguration.Status")
    if status in (None, "Suspended") and not isinstance(
        bucket.properties.get("VersioningConfiguration"), str
    ):
        path, what = "VersioningConfiguration", "an object can be overwritten for good"
        yield bucket.problem(path, what, "write Status: Enabled", value=status)


@rule("E9403", "Bucket or topic that takes requests without TLS")
def secure_transport(assembly: Assembly) -> Iterator[Finding]:
    """A bucket and a topic refuse requests without TLS."""
    policies = {
        BUCKET: ("AWS::S3::BucketPolicy", "Bucket"),
        TOPIC: ("AWS::SNS::TopicPolicy", "Topics"),
    }
    for kind, (policy_type, key) in policies.items():
        for store in assembly.of_type(kind):
            names = {store.name, store.arn}
            owners = [
                policy
                for policy in assembly.of_type(policy_type)
                if names & set(texts(policy.properties.get(key)))
            ]
            denied = [
                statement
                for statement in resource_statements(assembly, policy_type)
                if statement.resource in owners and _denies(statement.content, kind)
            ]
            if not denied:
                what = "requests without TLS are taken"
                way_out = "deny it in the policy where aws:SecureTransport is false"
                named = "BucketName" if kind == BUCKET else "TopicName"
                yield store.problem(named, what, way_out)


def _denies(content: dict[str, Any], kind: str) -> bool:
    plain = boolean(at(content, "Condition", "Bool", "aws:SecureTransport")) is False
    everybody = content.get("Principal") in ("*", {"AWS": "*"})
    actions = set(texts(content.get("Action")))
    needed = {"s3:*", "*"} if kind == BUCKET else {"sns:Publish", "SNS:Publish", "sns:*", "*"}
    return content.get("Effect") == "Deny" and plain and everybody and bool(actions & needed)


@resource_rule("E9404", "Image repository with mutable tags, or without scans", REPOSITORY)
def repository(repository: Resource) -> Iterator[Finding]:
    """An image repository has tags that are never moved, and scans what is pushed."""
    mutability = repository.properties.get("ImageTagMutability", "MUTABLE")
    if str(mutability).startswith("MUTABLE"):
        what = "a tag can be moved to another image"
        yield repository.problem("ImageTagMutability", what, "write IMMUTABLE", value=mutability)
    if not boolean(repository.at("ImageScanningConfiguration.ScanOnPush") or False):
        what, path = "images are not scanned when pushed", "ImageScanningConfiguration"
        yield repository.problem(path, what, "write ScanOnPush: true")


@resource_rule("E9405", "Log group without retention", LOG_GROUP)
def log_retention(group: Resource) -> Iterator[Finding]:
    """A log group says how long it keeps its events."""
    if "RetentionInDays" not in group.properties:
        what = "events are kept, and paid for, for ever"
        yield group.problem("RetentionInDays", what, "write how long, such as 90")


@rule("E9406", "Lifecycle rule that takes away what a model serves")
def served_objects(assembly: Assembly) -> Iterator[Finding]:
    """No lifecycle rule takes away or archives what a model serves, and each has its own Id."""
    for bucket in assembly.of_type(BUCKET):
        yield from lifecycle_problems(assembly, bucket)


def lifecycle_problems(assembly: Assembly, bucket: Resource) -> Iterator[Finding]:
    """Yield the lifecycle rules of a bucket that act on served archives, or share an Id."""
    served = _served_keys(assembly, bucket)
    seen: set[str] = set()
    for index, lifecycle in objects(bucket.at("LifecycleConfiguration.Rules")):
        path = f"LifecycleConfiguration.Rules[{index}]"
        name = known_text(lifecycle.get("Id"))
        if name is not None and name in seen:
            yield bucket.problem(path, "two lifecycle rules have one Id", "rename one", value=name)
        seen.add(name or "")
        transitions = [transition for _, transition in objects(lifecycle.get("Transitions"))]
        classes = {transition.get("StorageClass") for transition in transitions}
        acts = {"ExpirationInDays", "ExpirationDate"} & set(lifecycle) or classes & {
            "GLACIER",
            "DEEP_ARCHIVE",
        }
        prefix = str(lifecycle.get("Prefix", ""))
        hit = next((key for key in served if key.startswith(prefix)), None)
        enabled = lifecycle.get("Status") == "Enabled"
        if acts and enabled and hit is not None and not lifecycle.get("TagFilters"):
            what = "the rule takes away an archive that a model serves"
            yield bucket.problem(path, what, "narrow it by TagFilters or Prefix", value=hit)


def _served_keys(assembly: Assembly, bucket: Resource) -> list[str]:
    start = f"s3://{bucket.name}/"
    urls = (
        str(container.get("ModelDataUrl", ""))
        for model in assembly.of_type(MODEL)
        for _, container in containers(model)
    )
    found = [url.removeprefix(start) for url in urls if url.startswith(start)]
    return found or ["engines/"]


@rule("E9407", "Secret in plain text")
def plain_secrets(assembly: Assembly) -> Iterator[Finding]:
    """No secret is in a template as plain text."""
    for resource, path, name, value in _variables(assembly):
        text = known_text(value) or ""
        secret = SECRET_NAME.search(name) and len(text) >= 8
        if SECRET_VALUE.search(text) or (secret and not text.startswith(("arn:", "/", "s3://"))):
            what = f"variable {name} looks like a secret, and readers of the template see it"
            way_out = "keep it in Secrets Manager or Parameter Store"
            yield resource.problem(path, what, way_out, value=f"{text[:4]}…")


def _variables(assembly: Assembly) -> Iterator[tuple[Resource, str, str, Any]]:
    for model in assembly.of_type(MODEL):
        for path, container in containers(model):
            for name, value in fields(container.get("Environment")).items():
                yield model, f"{path}.Environment.{name}", name, value
    for project in assembly.of_type("AWS::CodeBuild::Project"):
        for index, variable in objects(project.at("Environment.EnvironmentVariables")):
            if variable.get("Type", "PLAINTEXT") == "PLAINTEXT":
                path = f"Environment.EnvironmentVariables[{index}].Value"
                yield project, path, str(variable.get("Name")), variable.get("Value")
