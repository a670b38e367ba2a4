"""Every IAM statement of a template: whose it is, what it allows, and on what."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from template_rules.template import Resource, Template
from template_rules.values import fields, is_known, items, objects, text

INLINE = ("AWS::IAM::Role", "AWS::IAM::User", "AWS::IAM::Group")
ATTACHED = (
    "AWS::IAM::Policy",
    "AWS::IAM::ManagedPolicy",
    "AWS::IAM::RolePolicy",
    "AWS::IAM::UserPolicy",
    "AWS::IAM::GroupPolicy",
)
OF_RESOURCES = {
    "AWS::S3::BucketPolicy": "PolicyDocument",
    "AWS::SNS::TopicPolicy": "PolicyDocument",
    "AWS::SQS::QueuePolicy": "PolicyDocument",
    "AWS::KMS::Key": "KeyPolicy",
    "AWS::ECR::Repository": "RepositoryPolicyText",
    "AWS::SecretsManager::ResourcePolicy": "ResourcePolicy",
}


@dataclass(frozen=True, eq=False)
class Statement:
    """One statement and where it stands."""

    resource: Resource
    path: str
    content: dict[str, Any]

    @property
    def allows(self) -> bool:
        """True for Allow, False for Deny."""
        return text(self.content.get("Effect")) == "Allow"

    @property
    def actions(self) -> tuple[str, ...]:
        """Every action that is known."""
        return tuple(
            each for value in items(self.content.get("Action")) if (each := text(value)) is not None
        )

    @property
    def resources(self) -> tuple[str, ...]:
        """What it is about; unknown parts are marked."""
        return tuple(each for each in items(self.content.get("Resource")) if isinstance(each, str))

    @property
    def narrowed(self) -> bool:
        """True when a condition narrows it."""
        return bool(self.content.get("Condition"))


def identity_statements(template: Template) -> Iterator[Statement]:
    """What roles, users, groups and policies may do."""
    for resource in template.of_type(*INLINE):
        for index, policy in objects(resource.properties.get("Policies")):
            yield from _statements(
                resource, f"Policies[{index}].PolicyDocument", policy.get("PolicyDocument")
            )
    for resource in template.of_type(*ATTACHED):
        yield from _statements(
            resource, "PolicyDocument", resource.properties.get("PolicyDocument")
        )


def resource_statements(template: Template) -> Iterator[Statement]:
    """What buckets, topics, queues, keys and repositories let others do with them."""
    for resource in template.of_type(*OF_RESOURCES):
        path = OF_RESOURCES[resource.type]
        yield from _statements(resource, path, resource.properties.get(path))


def trust_statements(template: Template) -> Iterator[Statement]:
    """Who may assume a role."""
    for role in template.of_type("AWS::IAM::Role"):
        yield from _statements(
            role, "AssumeRolePolicyDocument", role.properties.get("AssumeRolePolicyDocument")
        )


def principals(statement: Statement) -> tuple[str, ...]:
    """Principals of a statement, of whatever kind."""
    given = statement.content.get("Principal")
    if isinstance(given, str):
        return (given,)
    return tuple(
        each for kind in fields(given).values() for each in items(kind) if isinstance(each, str)
    )


def policy(given: Any) -> dict[str, Any]:
    """A policy as an object, from an object or from JSON text; empty for what is neither or not
    known.
    """
    if isinstance(given, str) and is_known(given):
        try:
            return fields(json.loads(given))
        except (ValueError, RecursionError):
            return {}
    return fields(given)


def _statements(resource: Resource, path: str, document: Any) -> Iterator[Statement]:
    for index, each in objects(policy(document).get("Statement")):
        yield Statement(resource, f"{path}.Statement[{index}]", each)
