"""IAM statements of an assembly, and what they allow a role to do."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from template_rules.templates import Assembly, Resource
from template_rules.values import fields, is_known, is_unknown, known_text, objects, texts

ROLE, POLICY = "AWS::IAM::Role", "AWS::IAM::Policy"
RESOURCE_POLICIES = {
    "AWS::S3::BucketPolicy": "PolicyDocument",
    "AWS::SNS::TopicPolicy": "PolicyDocument",
    "AWS::KMS::Key": "KeyPolicy",
    "AWS::ECR::Repository": "RepositoryPolicyText",
    "AWS::EC2::VPCEndpoint": "PolicyDocument",
}
Context = Mapping[str, Any]
"""Condition keys of a request and their values; a key that is absent is not evaluated."""


@dataclass(frozen=True, eq=False)
class Statement:
    """One statement of a policy and where it is."""

    resource: Resource
    path: str
    content: dict[str, Any]

    @property
    def allows(self) -> bool:
        """Return True for Allow, False for Deny."""
        return known_text(self.content.get("Effect")) == "Allow"

    @property
    def actions(self) -> list[str]:
        """Return the actions."""
        return texts(self.content.get("Action"))

    @property
    def resources(self) -> list[str]:
        """Return the ARNs; unknown parts are marked."""
        return texts(self.content.get("Resource"))

    @property
    def principals(self) -> list[str]:
        """Return the principals of any kind."""
        given = self.content.get("Principal")
        if isinstance(given, dict):
            return [name for kind in given.values() for name in texts(kind)]
        return texts(given)

    @property
    def conditions(self) -> Iterator[tuple[str, str, Any]]:
        """Yield (operator, key, values)."""
        for operator, block in fields(self.content.get("Condition")).items():
            for key, values in fields(block).items():
                yield operator, key, values

    def condition_keys(self) -> set[str]:
        """Return the condition keys in lower case."""
        return {key.lower() for _, key, _ in self.conditions}

    def matches(self, action: str, arn: str, context: Context) -> bool:
        """Return True when the statement is about an action on a resource in a context."""
        about = any(covers(name, action) for name in self.actions)
        on = any(is_unknown(name) or covers(name, arn) for name in self.resources)
        return about and on and self.holds(context)

    def holds(self, context: Context) -> bool:
        """Return False when a condition on a key of the context fails."""
        known = {key.lower(): value for key, value in context.items()}
        return all(
            _condition_holds(operator, values, known[key.lower()])
            for operator, key, values in self.conditions
            if key.lower() in known
        )


def statements(resource: Resource, path: str, document: Any) -> Iterator[Statement]:
    """Yield the statements of a policy document, given as an object or as JSON text."""
    if isinstance(document, str) and is_known(document):
        try:
            document = json.loads(document)
        except (ValueError, RecursionError):
            return
    for index, content in objects(fields(document).get("Statement")):
        yield Statement(resource, f"{path}.Statement[{index}]", content)


def identity_statements(assembly: Assembly) -> Iterator[Statement]:
    """Yield what roles and the policies beside them may do."""
    for role in assembly.of_type(ROLE):
        for index, policy in objects(role.properties.get("Policies")):
            path = f"Policies[{index}].PolicyDocument"
            yield from statements(role, path, policy.get("PolicyDocument"))
    for policy_resource in assembly.of_type(POLICY):
        document = policy_resource.properties.get("PolicyDocument")
        yield from statements(policy_resource, "PolicyDocument", document)


def resource_statements(assembly: Assembly, *types: str) -> Iterator[Statement]:
    """Yield what buckets, topics, keys, repositories and VPC endpoints allow others."""
    for resource in assembly.of_type(*(types or RESOURCE_POLICIES)):
        path = RESOURCE_POLICIES[resource.type]
        yield from statements(resource, path, resource.properties.get(path))


def trust_statements(role: Resource) -> list[Statement]:
    """Return who may assume a role."""
    path = "AssumeRolePolicyDocument"
    return list(statements(role, path, role.properties.get(path)))


def attached_policies(assembly: Assembly, role: Resource) -> list[Resource]:
    """Return the policy resources beside a role that are attached to it."""
    policies = assembly.of_type(POLICY)
    return [policy for policy in policies if role.name in texts(policy.properties.get("Roles"))]


def role_statements(assembly: Assembly, role: Resource) -> list[Statement]:
    """Return the statements of a role and of the policies attached to it."""
    owners = {role, *attached_policies(assembly, role)}
    return [found for found in identity_statements(assembly) if found.resource in owners]


def is_allowed(
    granted: Iterable[Statement], action: str, arn: str, context: Context | None = None
) -> bool:
    """Return True when statements allow an action on a resource, and none denies it."""
    about = [found for found in granted if found.matches(action, arn, context or {})]
    return bool(about) and all(statement.allows for statement in about)


def trusts(role: Resource, service: str, context: Context) -> bool:
    """Return True when a role lets a service principal assume it."""
    names = re.compile(rf"\*|{service}(\.[a-z0-9-]+)?\.amazonaws\.com(\.cn)?")
    return any(
        statement.allows
        and any(not is_known(name) or names.fullmatch(name) for name in statement.principals)
        and any(covers(action, "sts:AssumeRole") for action in statement.actions)
        and statement.holds(context)
        for statement in trust_statements(role)
    )


def allows_service(
    granted: Iterable[Statement], service: str, action: str, arn: str, context: Context
) -> bool:
    """Return True when a resource policy lets a service principal do something."""
    principal = f"{service}.amazonaws.com"
    given = [
        found
        for found in granted
        if any(not is_known(name) or name in ("*", principal) for name in found.principals)
    ]
    return is_allowed(given, action, arn, context)


@cache
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(re.escape(text).replace(r"\*", ".*").replace(r"\?", "."), re.I | re.S)


def covers(pattern: str, name: str) -> bool:
    """Return True when a pattern with * and ? covers a name."""
    return _pattern(pattern).fullmatch(name) is not None


def _condition_holds(operator: str, values: Any, actual: Any) -> bool:
    """Return whether one condition is met; operators that are not known here are."""
    name = operator.split(":")[-1].removesuffix("IfExists")
    wanted = [
        str(value).lower() if isinstance(value, bool) else str(value) for value in _list(values)
    ]
    given = [str(value) for value in _list(actual)]
    negated = "Not" in name
    if name in ("Bool", "StringEquals", "StringNotEquals", "ArnNotEquals"):
        match = any(value in wanted or not all(map(is_known, wanted)) for value in given)
    elif name.endswith(("Like", "ArnEquals", "IgnoreCase")):
        match = any(covers(pattern, value) for value in given for pattern in wanted)
    else:
        return True
    return match is not negated


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
