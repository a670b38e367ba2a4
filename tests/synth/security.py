"""Checks of what a template lets whom do, beyond our template rules.

Each is a small function that yields one sentence for every fault.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from onboarding.aws_limits import GITHUB_ISSUER
from onboarding.environment_spec import EnvironmentSpec
from roundhouse.gitops.execution_policy import RESOURCE_TYPES
from stacks.suppressions import BENCHMARKS, INTERFACES, WILDCARDS
from tests.synth.reasoned_wildcards import REASONED

Template = Mapping[str, Any]
Check = Callable[[Template, EnvironmentSpec], Iterator[str]]
Named = tuple[str, dict[str, Any]]
"""A logical id and a statement."""


KNOWN_TYPES = frozenset(RESOURCE_TYPES)
"""Types that these checks know: whoever adds one there judges here whether it is a store."""

SERVICES = {
    "chatbot.amazonaws.com": "AWS::Chatbot::SlackChannelConfiguration",
    "codebuild.amazonaws.com": "AWS::CodeBuild::Project",
    "lambda.amazonaws.com": "AWS::Lambda::Function",
    "sagemaker.amazonaws.com": "AWS::SageMaker::Model",
    "states.amazonaws.com": "AWS::StepFunctions::StateMachine",
}
"""Services that may assume a role."""
MADE_BY_JOBS = re.compile(r"arn:aws:sagemaker:[^*]*:(endpoint|endpoint-config|model)/sm-epc-\*")
"""Models and endpoints of recommendation jobs, by the names that AWS gives them."""
IDENTITIES = {"AWS::IAM::OIDCProvider", "AWS::IAM::Role"}
CLAIMS = {f"{GITHUB_ISSUER}:{claim}" for claim in ("aud", "sub", "repository_id")}
"""What every token is asked for, word for word."""


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
        actions, keys = frozenset(items_of(statement["Action"])), condition_keys(statement)
        for resource in map(text, items_of(statement.get("Resource", []))):
            is_wild = (
                "*" in resource
                or "?" in resource
                or any("*" in action or "?" in action for action in actions)
            )
            if is_wild and reason(resource_type, actions, resource, keys) is None:
                yield f"{name}: {', '.join(actions)} on {resource} is wider than any reason"


def reason(
    resource_type: str, actions: frozenset[str], resource: str, keys: frozenset[str]
) -> str | None:
    """Return why a wildcard may stand in a policy of a resource of a type; None when it may not."""
    own = [item for item in REASONED if resource_type in item.only_in]
    of_role = resource_type in ("AWS::IAM::Role", "AWS::IAM::Policy")
    covering = (
        item.why for item in (WILDCARDS if of_role else own) if item.covers(actions, resource, keys)
    )
    return next(covering, None)


def managed_policies(template: Template, environment: EnvironmentSpec) -> Iterator[str]:
    """A managed policy, or an identity that is no role.

    Nobody here has more than exact statements.
    """
    for name, resource in template["Resources"].items():
        if resource["Type"] == "AWS::IAM::Policy":
            yield from _of_strangers(template, name, resource["Properties"])
        elif resource["Type"].startswith("AWS::IAM::") and resource["Type"] not in IDENTITIES:
            yield f"{name}: {resource['Type']} is no exact role"
        for arn in map(text, resource.get("Properties", {}).get("ManagedPolicyArns", [])):
            yield f"{name}: managed policy {arn}"


def trusts(template: Template, environment: EnvironmentSpec) -> Iterator[str]:
    """A role that anything but one service acting for this account may assume.

    But for GitHub's tokens with claims that are named, and one role by name.
    """
    for name, properties in _of_type(template, "AWS::IAM::Role"):
        for statement in properties["AssumeRolePolicyDocument"]["Statement"]:
            principal = statement.get("Principal", {})
            if isinstance(principal, dict) and set(principal) == {"Federated"}:
                yield from _loose_tokens(name, statement)
                continue
            if isinstance(principal, dict) and set(principal) == {"AWS"}:
                yield from _loose_roles(name, statement)
                continue
            services = (
                list(items_of(principal.get("Service", []))) if isinstance(principal, dict) else []
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


def _loose_tokens(name: str, statement: Mapping[str, Any]) -> Iterator[str]:
    conditions, claims = statement["Condition"], statement["Condition"].get("StringEquals", {})
    if set(conditions) != {"StringEquals"} or not set(claims) >= CLAIMS:
        yield f"{name}: may be assumed by tokens of {json.dumps(conditions)}"
    if statement["Action"] != "sts:AssumeRoleWithWebIdentity":
        yield f"{name}: its trust allows {statement['Action']}"
    for values in claims.values():
        if any("*" in value or "?" in value for value in items_of(values)):
            yield f"{name}: StringEquals knows no wildcard: {values}"


def _loose_roles(name: str, statement: Mapping[str, Any]) -> Iterator[str]:
    """A trust of an account, unless one role of it is named, that of promotions."""
    role = statement.get("Condition", {}).get("ArnEquals", {}).get("aws:PrincipalArn", "")
    accounts = {arn.rpartition(":")[0] for arn in items_of(statement["Principal"]["AWS"])}
    roles = list(items_of(role))
    if not all(re.fullmatch(r"[^*?]+:role/roundhouse-[a-z0-9-]+-promote", arn) for arn in roles):
        yield f"{name}: open to {json.dumps(statement['Principal'])}"
    elif {arn.partition(":role/")[0] for arn in roles} != accounts:
        yield f"{name}: names a role of another account: {roles}"


def boundaries(template: Template, environment: EnvironmentSpec) -> Iterator[str]:
    """A role without the permissions boundary that the environment names."""
    for name, properties in _of_type(template, "AWS::IAM::Role"):
        if properties.get("PermissionsBoundary") != environment.permissions_boundary_arn:
            yield f"{name}: has the boundary {properties.get('PermissionsBoundary')}"


def destructions(template: Template, environment: EnvironmentSpec) -> Iterator[str]:
    """A role that may delete, change a policy, or do anything to an identity but hand a role on.

    What a recommendation job makes, it deletes.
    """
    for resource_type, name, statement in allowing(template):
        if not resource_type.startswith("AWS::IAM::"):
            continue
        resources = map(text, items_of(statement["Resource"]))
        is_of_jobs = all(MADE_BY_JOBS.fullmatch(resource) for resource in resources)
        for action in items_of(statement["Action"]):
            service, _, verb = action.partition(":")
            deletes = verb.startswith(("Delete", "Remove", "Terminate")) and action not in (
                *INTERFACES,
                "s3:DeleteObjectTagging",
                *(BENCHMARKS if is_of_jobs else ()),
            )
            reads = verb.startswith(("Get", "List"))
            changes = "Policy" in verb or (service == "iam" and verb != "PassRole")
            if deletes or (changes and not reads):
                yield f"{name}: may {action}"


def public(template: Template, environment: EnvironmentSpec) -> Iterator[str]:
    """A store that somebody outside the account may reach."""
    for name, bucket in _of_type(template, "AWS::S3::Bucket"):
        blocked = bucket.get("PublicAccessBlockConfiguration", {})
        settings = (
            "BlockPublicAcls",
            "BlockPublicPolicy",
            "IgnorePublicAcls",
            "RestrictPublicBuckets",
        )
        if (
            [blocked.get(setting) for setting in settings] != [True] * 4
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


CHECKS: tuple[Check, ...] = (
    unknown_types,
    wildcards,
    managed_policies,
    trusts,
    boundaries,
    destructions,
    public,
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
            if isinstance(principal, dict) and set(principal) == {"AWS"}:
                yield from _loose_roles(name, statement)
            else:
                yield f"{name}: open to {json.dumps(principal)}"


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
            yield from items_of(node["Statement"])
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


def items_of(value: Any) -> Iterator[Any]:
    yield from value if isinstance(value, list) else [value]


def text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)
