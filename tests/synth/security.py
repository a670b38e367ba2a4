"""Checks of what a template lets whom do, beyond our template rules.

Each is a small function that yields one sentence for every fault.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from onboarding.environment_spec import EnvironmentSpec
from roundhouse_cdk.exact_role import WILDCARDS
from roundhouse_cdk.statements import DESCRIBE_NETWORK, action_names

Template = Mapping[str, Any]
WITHOUT_RESOURCE = set(
    action_names(
        f"{DESCRIBE_NETWORK} ecr:GetAuthorizationToken cloudformation:ListStacks"
        " pricing:GetProducts sagemaker:ListTrainingJobs"
        " servicequotas:ListAWSDefaultServiceQuotas ListServiceQuotas"
        " application-autoscaling:DescribeScalableTargets cloudwatch:GetMetricData"
        " GetMetricWidgetImage PutMetricData"
    )
)
"""Actions that know no resource."""
SHAPES = re.compile(
    r"arn:aws[a-z-]*:(s3:::([a-z0-9.-]+/[a-zA-Z0-9./_-]*/\*)|[a-z0-9]+:[a-z0-9-]+:[0-9]{12}:("
    r"key/\*|network-interface/\*|alarm:([a-z0-9-]+-)?\*|repository/roundhouse-[a-z0-9-]+/\*"
    r"|log-group:/aws/[A-Za-z0-9/*-]+(:log-stream:[A-Za-z0-9-]*\*|:\*)?"
    r"|(execution|mapRun):roundhouse-[a-z0-9-]+[/:]\*|stack/roundhouse-[a-z0-9-]+-\*/\*"
    r"|project/roundhouse-[a-z0-9-]+-build-\*"
    r"|(training-job|endpoint|endpoint-config|inference-component|model)/[a-z0-9-]+-\*))"
)
"""ARNs of what has no name before it is there: below a prefix, or by the beginning of its name."""
MADE_BY_JOBS = re.compile(r"arn:aws:sagemaker:[^*]*:(endpoint|endpoint-config|model)/sm-epc-\*")
"""Models and endpoints of recommendation jobs, by the names that AWS gives them."""
TAKEN_BACK = set(
    action_names(
        "ec2:DeleteNetworkInterface DeleteNetworkInterfacePermission s3:DeleteObjectTagging"
    )
)
"""What a role deletes of its own: its network interfaces, and the mark of `roundhouse prune`."""


def wildcards(template: Template, environment: EnvironmentSpec) -> Iterator[str]:
    """A wildcard of a role that no entry of the reasoned list covers, or that is wider."""
    for name, statement in allowing(template):
        actions = set(items_of(statement["Action"]))
        for resource in map(text, items_of(statement["Resource"])):
            if not any(sign in part for part in (resource, *actions) for sign in "*?"):
                continue
            is_narrow = actions <= WITHOUT_RESOURCE
            if resource != "*":
                is_narrow = SHAPES.fullmatch(resource) is not None
                is_narrow &= not any(sign in action for action in actions for sign in "*?")
            if not is_narrow or reason(statement) is None:
                yield f"{name}: {', '.join(actions)} on {resource} is wider than any reason"


def reason(statement: Mapping[str, Any]) -> str | None:
    """Return why wildcards may stand in a statement of a role; None when they may not."""
    sid, keys = statement.get("Sid", ""), condition_keys(statement)
    return next((item.why for item in WILDCARDS if item.covers(sid, keys)), None)


def boundaries(template: Template, environment: EnvironmentSpec) -> Iterator[str]:
    """A role without the environment's permissions boundary, or with a managed policy."""
    for name, resource in template["Resources"].items():
        properties = resource.get("Properties", {})
        wanted = environment.permissions_boundary_arn
        if resource["Type"] == "AWS::IAM::Role" and properties.get("PermissionsBoundary") != wanted:
            yield f"{name}: has the boundary {properties.get('PermissionsBoundary')}"
        if "ManagedPolicyArns" in properties:
            yield f"{name}: managed policies {properties['ManagedPolicyArns']}"


def destructions(template: Template, environment: EnvironmentSpec) -> Iterator[str]:
    """A role that may delete, change a policy, or do anything to an identity but hand a role on.

    What a recommendation job makes, it deletes.
    """
    for name, statement in allowing(template):
        if all(MADE_BY_JOBS.fullmatch(text(item)) for item in items_of(statement["Resource"])):
            continue
        for action in set(items_of(statement["Action"])) - TAKEN_BACK:
            service, _, verb = action.partition(":")
            deletes = verb.startswith(("Delete", "Remove", "Terminate"))
            changes = "Policy" in verb or (service == "iam" and verb != "PassRole")
            if deletes or (changes and not verb.startswith(("Get", "List"))):
                yield f"{name}: may {action}"


def faults(template: Template, environment: EnvironmentSpec) -> list[str]:
    """Everything that any check finds."""
    checks = (wildcards, boundaries, destructions)
    return [
        f"{check.__name__}: {fault}" for check in checks for fault in check(template, environment)
    ]


def allowing(template: Template) -> Iterator[tuple[str, dict[str, Any]]]:
    """(logical id, statement) of everything that roles and the policies beside them allow."""
    for name, resource in template["Resources"].items():
        if resource["Type"] in ("AWS::IAM::Role", "AWS::IAM::Policy"):
            own = resource["Properties"]
            documents = [policy["PolicyDocument"] for policy in own.get("Policies", ())]
            for document in (*documents, own.get("PolicyDocument", {"Statement": ()})):
                for statement in document["Statement"]:
                    assert statement["Effect"] == "Allow", "roles have no Deny"
                    yield name, statement


def condition_keys(statement: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(
        key for operator in statement.get("Condition", {}).values() for key in operator
    )


def items_of(value: Any) -> Iterator[Any]:
    yield from value if isinstance(value, list) else [value]


def text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)
