"""The policy of CloudFormation's role: what an environment's stacks are made of, and no more.

Actions are those that the handlers of our resource types name in their schemas, which cfn-lint
ships; `cdk bootstrap --cloudformation-execution-policies` takes the policies' ARNs in place of
AdministratorAccess.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from onboarding.aws_limits import GITHUB_ISSUER, MANAGED_POLICY_CHARACTERS
from onboarding.environment_spec import EnvironmentSpec
from onboarding.names import artifact_bucket
from onboarding.platform import aws_partition

Statement = dict[str, Any]
SCHEMAS_REGION = "us-east-1"
HANDLERS = ("create", "read", "update", "delete")
RESOURCE_TYPES = (
    "AWS::ApplicationAutoScaling::ScalableTarget",
    "AWS::ApplicationAutoScaling::ScalingPolicy",
    "AWS::Chatbot::SlackChannelConfiguration",
    "AWS::CloudWatch::Alarm",
    "AWS::CloudWatch::Dashboard",
    "AWS::CloudWatch::OTelEnrichment",
    "AWS::CodeBuild::Project",
    "AWS::EC2::VPCEndpoint",
    "AWS::ECR::Repository",
    "AWS::IAM::OIDCProvider",
    "AWS::IAM::Policy",
    "AWS::IAM::Role",
    "AWS::KMS::Alias",
    "AWS::KMS::Key",
    "AWS::Lambda::Function",
    "AWS::Logs::LogGroup",
    "AWS::ObservabilityAdmin::TelemetryEnrichment",
    "AWS::S3::Bucket",
    "AWS::S3::BucketPolicy",
    "AWS::SNS::Subscription",
    "AWS::SNS::Topic",
    "AWS::SNS::TopicPolicy",
    "AWS::SageMaker::Endpoint",
    "AWS::SageMaker::EndpointConfig",
    "AWS::SageMaker::InferenceComponent",
    "AWS::SageMaker::Model",
    "AWS::StepFunctions::StateMachine",
)
"""Every type of resource in a template of ours, which the security checks of templates know."""
ENRICHMENTS = frozenset(name for name in RESOURCE_TYPES if name.endswith("Enrichment"))
"""Types of the environment alone that turns OTel enrichment on in the account."""
WITHOUT_SCHEMA = {
    "AWS::CodeBuild::Project": (
        "codebuild:BatchGetProjects",
        "codebuild:CreateProject",
        "codebuild:DeleteProject",
        "codebuild:UpdateProject",
        "iam:PassRole",
    ),
}
"""Types whose schema names no permission: the calls of the API that make one, believed."""
BESIDE = ("iam:CreateServiceLinkedRole", "ssm:GetParameters")
"""Application Auto Scaling's role for SageMaker; the version of `cdk bootstrap`, which every stack
reads.
"""
PASSED_TO = tuple(
    f"{service}.amazonaws.com"
    for service in ("chatbot", "codebuild", "lambda", "sagemaker", "states")
)
LINKED_ROLES = (
    "management.chatbot.amazonaws.com",
    "resource-explorer-2.amazonaws.com",
    "sagemaker.application-autoscaling.amazonaws.com",
)
"""Services that get a role of their own in the account with the first resource."""
UNUSED = {
    "elasticfilesystem": "functions of ours mount nothing",
    "firehose": "log groups of ours deliver to nothing",
    "s3files": "functions of ours mount nothing",
    "s3tables": "buckets of ours have no metadata tables",
    "vpc-lattice": "VPC endpoints of ours are of AWS's services",
    "vpce": "and of their own region",
}
"""Services that a handler names for properties that no template of ours has."""
UNUSED_ACTIONS = {
    "iam:AttachRolePolicy": "roles of ours have no managed policy",
    "iam:DetachRolePolicy": "roles of ours have no managed policy",
    "lambda:DeleteProvisionedConcurrencyConfig": "scalable targets of ours are endpoints' variants",
    "lambda:GetProvisionedConcurrencyConfig": "scalable targets of ours are endpoints' variants",
    "lambda:PutProvisionedConcurrencyConfig": "scalable targets of ours are endpoints' variants",
    "s3:DeleteObject": "a bucket of ours is emptied by nobody",
    "s3:GetObject": "state machines of ours are no objects",
    "s3:GetObjectVersion": "state machines of ours are no objects",
    "s3:PutObjectAcl": "a bucket of ours has no ACLs",
    "s3:REST.PUT.OBJECT": "this is no action of IAM",
    "kms:Decrypt": "state machines and functions of ours have no key",
    "kms:Encrypt": "functions of ours have no key",
    "kms:GenerateDataKey": "state machines of ours have no key",
    "kms:RetireGrant": "repositories of ours have no key",
    "kms:CreateGrant": "repositories of ours have no key",
}
"""Actions that a handler names for properties that no template of ours has, with the reason."""
OF_USERS = ("Group", "User")
"""Inline policies of ours are of roles."""


def execution_policies(
    environment: EnvironmentSpec, types: Sequence[str] = RESOURCE_TYPES
) -> tuple[dict[str, Any], ...]:
    """Return policy documents that allow CloudFormation to manage an environment's stacks.

    As few as IAM's limit of a managed policy's length takes. Raises KeyError for a type that
    neither a schema nor WITHOUT_SCHEMA knows.
    """
    left_out = frozenset() if environment.otel_enrichment == "create" else ENRICHMENTS
    kinds = [name for name in types if name not in left_out]
    actions = sorted(set(BESIDE).union(*map(type_actions, kinds)))
    if environment.permissions_boundary_arn is not None:
        actions.remove("iam:DeleteRolePermissionsBoundary")
    scopes: dict[str, list[str]] = {}
    for action in actions:
        scopes.setdefault(_scope(action), []).append(action)
    statements = [
        _statement(scope, members, environment) for scope, members in sorted(scopes.items())
    ]
    return tuple(_documents(statements))


def type_actions(resource_type: str) -> frozenset[str]:
    """Return the actions that a type's handlers need for what our templates use of it."""
    named = WITHOUT_SCHEMA.get(resource_type) or handler_actions(resource_type)
    return frozenset(action for action in named if unused_reason(action) is None)


def handler_actions(resource_type: str) -> frozenset[str]:
    """Return what the handlers of a type name, by AWS's schema in cfn-lint."""
    from cfnlint.schema import PROVIDER_SCHEMA_MANAGER

    schema: Mapping[str, Any] = PROVIDER_SCHEMA_MANAGER.get_resource_schema(
        SCHEMAS_REGION, resource_type
    ).schema
    handlers = schema["handlers"]
    return frozenset(
        action
        for handler in HANDLERS
        for action in handlers.get(handler, {}).get("permissions", ())
    )


def unused_reason(action: str) -> str | None:
    """Return why our stacks do not need an action that a handler names; None: they need it."""
    service, _, verb = action.partition(":")
    if service == "iam" and any(f"{noun}Policy" in verb for noun in OF_USERS):
        return "inline policies of ours are of roles"
    return UNUSED.get(service) or UNUSED_ACTIONS.get(action)


ANY = "any"
"""The scope of actions that know no resource, or whose resource has no name before it is there."""
WITHOUT_RESOURCE = frozenset(
    {
        "chatbot:CreateSlackChannelConfiguration",
        "chatbot:DescribeSlackChannelConfigurations",
        "chatbot:ListAssociations",
        "cloudwatch:DescribeAlarms",
        "cloudwatch:GetMetricData",
        "cloudwatch:GetOTelEnrichment",
        "cloudwatch:StartOTelEnrichment",
        "cloudwatch:StopOTelEnrichment",
        "cloudwatch:UpdateOTelEnrichment",
        "kms:CreateKey",
        "kms:ListAliases",
        "logs:DescribeIndexPolicies",
        "logs:DescribeLogGroups",
        "logs:DescribeResourcePolicies",
    }
)


OF_ANY = ("application-autoscaling", "ec2", "observabilityadmin", "resource-explorer-2")
"""Services whose every action here is about what has no name of ours."""
BOUNDED = frozenset({"iam:CreateRole", "iam:PutRolePermissionsBoundary", "iam:PutRolePolicy"})
"""What gives a role permissions: where the environment names a boundary, under that alone."""


def _scope(action: str) -> str:
    service, _, verb = action.partition(":")
    if action in WITHOUT_RESOURCE or service in OF_ANY:
        return ANY
    if verb in ("PassRole", "CreateServiceLinkedRole"):
        return verb
    if action in BOUNDED:
        return "iam-permissions"
    return "oidc" if "OpenIDConnectProvider" in verb else service


def _statement(scope: str, actions: Sequence[str], environment: EnvironmentSpec) -> Statement:
    title = "".join(part.capitalize() for part in scope.split("-"))
    statement: Statement = {
        "Sid": title if scope[0].islower() else scope,
        "Effect": "Allow",
        "Action": list(actions),
        "Resource": _resources(scope, environment),
    }
    condition = _condition(scope, environment)
    return statement if condition is None else {**statement, "Condition": condition}


def _resources(scope: str, environment: EnvironmentSpec) -> list[str]:
    """Return the ARNs of what a scope's actions are about: names that begin as our stacks' do."""
    partition, account, name = (
        aws_partition(environment.region),
        environment.account,
        environment.name,
    )
    place = f"{environment.region}:{account}"
    own = f"roundhouse-{name}"
    kinds = ("endpoint", "endpoint-config", "inference-component", "model")
    issuer = GITHUB_ISSUER if environment.forge is None else environment.forge.issuer
    found = {
        ANY: [],
        "chatbot": [f"chatbot::{account}:chat-configuration/slack-channel/{own}-*"],
        "cloudwatch": [
            f"cloudwatch:{place}:alarm:{name}-*",
            f"cloudwatch:{place}:alarm:TargetTracking-endpoint/{name}-*",
            f"cloudwatch:{place}:alarm:TargetTracking-inference-component/{name}-*",
            f"cloudwatch::{account}:dashboard/{own}*",
        ],
        "codebuild": [f"codebuild:{place}:project/{own}-*"],
        "CreateServiceLinkedRole": [f"iam::{account}:role/aws-service-role/*"],
        "ecr": [f"ecr:{place}:repository/{own}/*"],
        "iam": [f"iam::{account}:role/{own}-*"],
        "iam-permissions": [f"iam::{account}:role/{own}-*"],
        "kms": [f"kms:{place}:key/*", f"kms:{place}:alias/{own}*"],
        "lambda": [f"lambda:{place}:function:{own}-*"],
        "logs": [
            f"logs:{place}:log-group:/aws/{group}-*"
            for group in (
                f"codebuild/{own}",
                f"lambda/{own}",
                f"sagemaker/Endpoints/{name}",
                f"sagemaker/InferenceComponents/{name}",
            )
        ],
        "oidc": [f"iam::{account}:oidc-provider/{issuer}"],
        "PassRole": [f"iam::{account}:role/{own}-*"],
        "s3": [f"s3:::{artifact_bucket(environment)}"],
        "sagemaker": [f"sagemaker:{place}:{kind}/{name}-*" for kind in kinds],
        "sns": [f"sns:{place}:{own}-*"],
        "ssm": [f"ssm:{place}:parameter/cdk-bootstrap/*"],
        "states": [f"states:{place}:stateMachine:{own}-*"],
    }[scope]
    return [f"arn:{partition}:{resource}" for resource in found] or ["*"]


def _condition(scope: str, environment: EnvironmentSpec) -> dict[str, Any] | None:
    if scope == "iam-permissions" and environment.permissions_boundary_arn is not None:
        return {"StringEquals": {"iam:PermissionsBoundary": environment.permissions_boundary_arn}}
    if scope == "PassRole":
        return {"StringEquals": {"iam:PassedToService": list(PASSED_TO)}}
    if scope == "CreateServiceLinkedRole":
        return {"StringEquals": {"iam:AWSServiceName": list(LINKED_ROLES)}}
    return None


def _documents(statements: Sequence[Statement]) -> Iterator[dict[str, Any]]:
    """Yield documents that each hold as many whole statements as a managed policy takes."""
    held: list[Statement] = []
    for statement in statements:
        if held and _length([*held, statement]) > MANAGED_POLICY_CHARACTERS:
            yield _document(held)
            held = []
        held.append(statement)
    yield _document(held)


def _document(statements: Sequence[Statement]) -> dict[str, Any]:
    return {"Version": "2012-10-17", "Statement": list(statements)}


def _length(statements: Sequence[Statement]) -> int:
    """Return the characters that IAM counts: all but white space."""
    return len(json.dumps(_document(statements), separators=(",", ":")))
