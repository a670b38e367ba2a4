"""Checks of what a template lets whom do.

Each a small function that yields one sentence for every fault.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from onboarding.environment_spec import EnvironmentSpec
from tests.synth.reasoned_wildcards import INTERFACES, REASONED

Template = Mapping[str, Any]
Check = Callable[[Template, EnvironmentSpec], Iterator[str]]
Named = tuple[str, dict[str, Any]]
"""A logical id and a statement."""


KNOWN_TYPES = frozenset(
    {
        "AWS::ApplicationAutoScaling::ScalableTarget",
        "AWS::ApplicationAutoScaling::ScalingPolicy",
        "AWS::CloudWatch::Alarm",
        "AWS::CloudWatch::Dashboard",
        "AWS::CodeBuild::Project",
        "AWS::EC2::VPCEndpoint",
        "AWS::ECR::Repository",
        "AWS::IAM::Policy",
        "AWS::IAM::Role",
        "AWS::KMS::Alias",
        "AWS::KMS::Key",
        "AWS::Logs::LogGroup",
        "AWS::S3::Bucket",
        "AWS::S3::BucketPolicy",
        "AWS::SNS::Subscription",
        "AWS::SNS::Topic",
        "AWS::SNS::TopicPolicy",
        "AWS::SageMaker::Endpoint",
        "AWS::SageMaker::EndpointConfig",
        "AWS::SageMaker::Model",
        "AWS::StepFunctions::StateMachine",
    }
)
"""Types that these checks know; any other may be a store that nobody has judged yet."""

SERVICES = {
    "codebuild.amazonaws.com": "AWS::CodeBuild::Project",
    "sagemaker.amazonaws.com": "AWS::SageMaker::Model",
    "states.amazonaws.com": "AWS::StepFunctions::StateMachine",
}
"""Services that may assume a role."""


def unknown_types(template: Template, environment: EnvironmentSpec) -> Iterator[str]:
    """A resource of a type that nobody has judged."""
    for name, resource in template["Resources"].items():
        if resource["Type"] not in KNOWN_TYPES:
            yield f"{name}: {resource['Type']} is a type that no check knows"


def wildcards(template: Template, environment: EnvironmentSpec) -> Iterator[str]:
    """A wildcard in an action or a resource that no entry of the reasoned list covers."""
    for resource_type, name, statement in allowing(template):
        if "NotAction" in statement or "NotResource" in statement or "NotPrincipal" in statement:
            yield f"{name}: a statement allows everything but what it names"
            continue
        actions, keys = tuple(listed(statement["Action"])), condition_keys(statement)
        for resource in map(text, listed(statement.get("Resource", []))):
            is_wild = (
                "*" in resource
                or "?" in resource
                or any("*" in action or "?" in action for action in actions)
            )
            if is_wild and not any(
                each.covers(resource_type, actions, resource, keys) for each in REASONED
            ):
                yield f"{name}: {', '.join(actions)} on {resource} is wider than any reason"


def managed_policies(template: Template, environment: EnvironmentSpec) -> Iterator[str]:
    """A managed policy, or an identity that is no role.

    Nobody here has more than exact statements.
    """
    for name, resource in template["Resources"].items():
        if resource["Type"] == "AWS::IAM::Policy":
            yield from _of_strangers(template, name, resource["Properties"])
        elif resource["Type"].startswith("AWS::IAM::") and resource["Type"] != "AWS::IAM::Role":
            yield f"{name}: {resource['Type']} is no exact role"
        for arn in map(text, resource.get("Properties", {}).get("ManagedPolicyArns", [])):
            yield f"{name}: managed policy {arn}"


def trusts(template: Template, environment: EnvironmentSpec) -> Iterator[str]:
    """A role that anything but one service acting for this account may assume."""
    for name, properties in _of_type(template, "AWS::IAM::Role"):
        for statement in properties["AssumeRolePolicyDocument"]["Statement"]:
            principal = statement.get("Principal", {})
            services = (
                list(listed(principal.get("Service", []))) if isinstance(principal, dict) else []
            )
            if (
                not isinstance(principal, dict)
                or set(principal) != {"Service"}
                or not set(services) <= set(SERVICES)
            ):
                yield f"{name}: may be assumed by {json.dumps(principal)}"
            if (
                statement.get("Condition", {}).get("StringEquals", {}).get("aws:SourceAccount")
                != environment.account
            ):
                yield f"{name}: may be assumed for another account"
            if statement["Action"] != "sts:AssumeRole":
                yield f"{name}: its trust allows {statement['Action']}"


def boundaries(template: Template, environment: EnvironmentSpec) -> Iterator[str]:
    """A role without the permissions boundary that the environment names."""
    for name, properties in _of_type(template, "AWS::IAM::Role"):
        if properties.get("PermissionsBoundary") != environment.permissions_boundary_arn:
            yield f"{name}: has the boundary {properties.get('PermissionsBoundary')}"


def passed_roles(template: Template, environment: EnvironmentSpec) -> Iterator[str]:
    """A role that may be handed to any service, or by name to anybody."""
    for _, name, statement in allowing(template):
        if "iam:PassRole" in listed(statement["Action"]):
            if "iam:PassedToService" not in condition_keys(statement):
                yield f"{name}: hands roles to any service"
            if any("*" in text(resource) for resource in listed(statement["Resource"])):
                yield f"{name}: hands on any role"


def destructions(template: Template, environment: EnvironmentSpec) -> Iterator[str]:
    """A role that may delete, change a policy, or do anything to an identity but hand a role on."""
    for resource_type, name, statement in allowing(template):
        for action in listed(statement["Action"]) if resource_type.startswith("AWS::IAM::") else ():
            service, _, verb = action.partition(":")
            deletes = (
                verb.startswith(("Delete", "Remove", "Terminate")) and action not in INTERFACES
            )
            if deletes or "Policy" in verb or (service == "iam" and verb != "PassRole"):
                yield f"{name}: may {action}"


def unencrypted(template: Template, environment: EnvironmentSpec) -> Iterator[str]:
    """A store without the environment's key, or at rest with none; a log that never ends."""
    for name, bucket in _of_type(template, "AWS::S3::Bucket"):
        rules = bucket.get("BucketEncryption", {}).get("ServerSideEncryptionConfiguration", [])
        keys = [rule.get("ServerSideEncryptionByDefault", {}) for rule in rules]
        if not keys or any(
            key.get("SSEAlgorithm") != "aws:kms" or not key.get("KMSMasterKeyID") for key in keys
        ):
            yield f"{name}: the bucket is not encrypted by a key of the environment"
    for name, topic in _of_type(template, "AWS::SNS::Topic"):
        key = text(topic.get("KmsMasterKeyId", ""))
        if not key or "alias/aws/" in key:
            yield f"{name}: the topic is not encrypted by a key that CloudWatch may use"
    for name, queue in _of_type(template, "AWS::SQS::Queue"):
        if "KmsMasterKeyId" not in queue:
            yield f"{name}: the queue is not encrypted by a key of the environment"
    for name, key in _of_type(template, "AWS::KMS::Key"):
        if key.get("EnableKeyRotation") is not True:
            yield f"{name}: the key is never rotated"
    for name, group in _of_type(template, "AWS::Logs::LogGroup"):
        if "RetentionInDays" not in group:
            yield f"{name}: the log is kept for ever"
    for name, config in _of_type(template, "AWS::SageMaker::EndpointConfig"):
        if config.get("DataCaptureConfig", {"KmsKeyId": ""}).get("KmsKeyId") is None:
            yield f"{name}: captures are not encrypted by a key of the environment"
        if (
            config.get("AsyncInferenceConfig", {"OutputConfig": {"KmsKeyId": ""}})[
                "OutputConfig"
            ].get("KmsKeyId")
            is None
        ):
            yield f"{name}: answers are not encrypted by a key of the environment"


def public(template: Template, environment: EnvironmentSpec) -> Iterator[str]:
    """A store that somebody outside the account may reach."""
    for name, bucket in _of_type(template, "AWS::S3::Bucket"):
        blocked = bucket.get("PublicAccessBlockConfiguration", {})
        doors = (
            "BlockPublicAcls",
            "BlockPublicPolicy",
            "IgnorePublicAcls",
            "RestrictPublicBuckets",
        )
        if (
            [blocked.get(door) for door in doors] != [True] * 4
            or "AccessControl" in bucket
            or "WebsiteConfiguration" in bucket
        ):
            yield f"{name}: the bucket is not closed to the public"
    for kind, key in (
        ("AWS::S3::BucketPolicy", "PolicyDocument"),
        ("AWS::SNS::TopicPolicy", "PolicyDocument"),
    ):
        for name, properties in _of_type(template, kind):
            yield from _open_statements(name, properties[key], environment)
    for name, key_properties in _of_type(template, "AWS::KMS::Key"):
        yield from _open_statements(name, key_properties["KeyPolicy"], environment)
    for name, repository in _of_type(template, "AWS::ECR::Repository"):
        yield from _open_statements(
            name, repository.get("RepositoryPolicyText", {"Statement": []}), environment
        )
        if repository.get("ImageTagMutability") != "IMMUTABLE" or repository.get(
            "ImageScanningConfiguration"
        ) != {"ScanOnPush": True}:
            yield f"{name}: images may change under their tag, or are not scanned"


def in_the_clear(template: Template, environment: EnvironmentSpec) -> Iterator[str]:
    """A bucket or topic that takes requests without TLS."""
    policies = {
        "AWS::S3::Bucket": "AWS::S3::BucketPolicy",
        "AWS::SNS::Topic": "AWS::SNS::TopicPolicy",
    }
    for store, policy in policies.items():
        for name, _ in _of_type(template, store):
            documents = [
                properties
                for _, properties in _of_type(template, policy)
                if f'"{name}"' in json.dumps(properties)
            ]
            if not any(
                _denies_plain_requests(properties["PolicyDocument"]) for properties in documents
            ):
                yield f"{name}: takes requests without TLS"


def open_networks(template: Template, environment: EnvironmentSpec) -> Iterator[str]:
    """A model whose container may reach a network, or that lies outside the environment's VPC."""
    for name, model in _of_type(template, "AWS::SageMaker::Model"):
        if model.get("EnableNetworkIsolation") is not True:
            yield f"{name}: its container reaches the network"
        if environment.network is not None and "VpcConfig" not in model:
            yield f"{name}: lies outside the environment's VPC"


def privileged(template: Template, environment: EnvironmentSpec) -> Iterator[str]:
    """A build that owns its machine's Docker daemon and may read more than sources.

    One project needs the daemon.
    """
    for name, project in _of_type(template, "AWS::CodeBuild::Project"):
        if project["Environment"].get("PrivilegedMode") and not project["Name"].endswith(
            "-build-images"
        ):
            yield f"{name}: runs privileged"


CHECKS: tuple[Check, ...] = (
    unknown_types,
    wildcards,
    managed_policies,
    trusts,
    boundaries,
    passed_roles,
    destructions,
    unencrypted,
    public,
    in_the_clear,
    open_networks,
    privileged,
)


def faults(template: Template, environment: EnvironmentSpec) -> list[str]:
    """Everything that any check finds."""
    return [
        f"{check.__name__}: {fault}" for check in CHECKS for fault in check(template, environment)
    ]


def _of_strangers(template: Template, name: str, policy: Mapping[str, Any]) -> Iterator[str]:
    """A policy beside its role is on one role of the same template, and on nobody else."""
    roles = [{"Ref": role} for role, _ in _of_type(template, "AWS::IAM::Role")]
    given = policy.get("Roles", [])
    if len(given) != 1 or given[0] not in roles or "Users" in policy or "Groups" in policy:
        yield f"{name}: the policy is on more than one role of this template, or on another"


def _open_statements(
    name: str, document: Mapping[str, Any], environment: EnvironmentSpec
) -> Iterator[str]:
    """Statements that let in a principal other than this account, or a foreign service."""
    for statement in document["Statement"]:
        principal = statement.get("Principal", "*")
        own = principal == {"AWS": f"arn:aws:iam::{environment.account}:root"}
        serves = (
            statement.get("Condition", {}).get("StringEquals", {}).get("aws:SourceAccount")
            == environment.account
        )
        is_service = isinstance(principal, dict) and set(principal) == {"Service"} and serves
        if statement["Effect"] == "Allow" and not own and not is_service:
            yield f"{name}: open to {json.dumps(principal)}"


def _denies_plain_requests(document: Mapping[str, Any]) -> bool:
    plain = {"Bool": {"aws:SecureTransport": "false"}}
    return any(
        each["Effect"] == "Deny" and each.get("Condition") == plain
        for each in document["Statement"]
    )


def allowing(template: Template) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(type, logical id, statement) of everything that a policy allows, whatever the policy hangs
    on; trust policies apart.
    """
    for name, resource in template["Resources"].items():
        properties = {
            key: value
            for key, value in resource.get("Properties", {}).items()
            if key != "AssumeRolePolicyDocument"
        }
        for statement in _statements(properties):
            if statement.get("Effect") == "Allow":
                yield resource["Type"], name, statement


def _statements(node: Any) -> Iterator[dict[str, Any]]:
    """Every statement of every policy document inside a value."""
    if isinstance(node, dict):
        if "Statement" in node:
            yield from listed(node["Statement"])
        for value in node.values():
            yield from _statements(value)
    elif isinstance(node, list):
        for value in node:
            yield from _statements(value)


def _of_type(template: Template, kind: str) -> Iterator[Named]:
    for name, resource in template["Resources"].items():
        if resource["Type"] == kind:
            yield name, resource.get("Properties", {})


def condition_keys(statement: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(
        key for operator in statement.get("Condition", {}).values() for key in operator
    )


def listed(value: Any) -> Iterator[Any]:
    yield from value if isinstance(value, list) else [value]


def text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)
