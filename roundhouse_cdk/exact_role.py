"""An IAM role with one inline policy, and the reasons of the wildcards in its statements.

cdk-nag, which is not imported here, reads `Metadata: {cdk_nag: {rules_to_suppress: ...}}` of a
resource.
A wildcard that no entry covers stays a finding of whoever adds cdk-nag to a stage.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from aws_cdk import CfnResource, Duration
from aws_cdk import aws_iam as iam
from constructs import Construct, IConstruct

from onboarding.environment_spec import EnvironmentSpec
from roundhouse_cdk.statements import (
    ATTACH_NETWORK,
    DESCRIBE_NETWORK,
    HAND_INTERFACE,
    Statement,
    action_names,
)


class ExactRole(iam.Role):
    """Deploys a role within the environment's permissions boundary.

    The policy is inline: whoever needs the role finds it complete, and no grant of a construct that
    is given `exact` widens it. A service's name, such as `codebuild`, or a principal may assume it;
    a service for this account alone.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        environment: EnvironmentSpec,
        trusts: str | iam.IPrincipal,
        statements: Sequence[Statement],
        role_name: str | None = None,
        session_seconds: int | None = None,
    ) -> None:
        principal = trusts
        if isinstance(principal, str):
            account = {"StringEquals": {"aws:SourceAccount": environment.account}}
            principal = iam.ServicePrincipal(f"{trusts}.amazonaws.com", conditions=account)
        boundary = environment.permissions_boundary_arn
        seconds = None if session_seconds is None else Duration.seconds(session_seconds)
        super().__init__(
            scope,
            construct_id,
            role_name=role_name,
            assumed_by=principal,
            max_session_duration=seconds,
            inline_policies={
                "exact": iam.PolicyDocument.from_json({"Statement": list(statements)})
            },
            permissions_boundary=(
                None
                if boundary is None
                else iam.ManagedPolicy.from_managed_policy_arn(
                    scope, f"{construct_id}Boundary", boundary
                )
            ),
        )
        self.exact = self.without_policy_updates()
        """The same role for constructs that would add permissions of their own."""
        add_metadata(self, statements)


@dataclass(frozen=True)
class Wildcard:
    """A wildcard that may stand: why, on which resources, for which actions, narrowed by what.

    `resource` is a pattern of the whole ARN. `actions` are words (see `action_names`), and
    `conditions` the keys that must narrow it.
    """

    why: str
    resource: str
    actions: str
    conditions: str = ""

    def covers(self, actions: frozenset[str], resource: str, keys: frozenset[str]) -> bool:
        """Return True when a statement's wildcard is this one."""
        named = re.fullmatch(self.resource, resource) is not None
        allowed, narrowing = set(action_names(self.actions)), set(self.conditions.split())
        return named and actions <= allowed and keys >= narrowing


ARN = r"arn:aws[a-z-]*:{}:[a-z0-9-]+:[0-9]{{12}}:{}"
KEY = ARN.format("kms", r"key/\*")
BUCKET = r"arn:aws[a-z-]*:s3:::roundhouse-[a-z0-9-]+"

WILDCARDS = (
    Wildcard(
        "these actions know no resource; they read or list only, or open what others name",
        r"\*",
        f"{DESCRIBE_NETWORK} ecr:GetAuthorizationToken cloudformation:ListStacks"
        " pricing:GetProducts sagemaker:ListTrainingJobs"
        " servicequotas:ListAWSDefaultServiceQuotas ListServiceQuotas"
        " application-autoscaling:DescribeScalableTargets DescribeScalingPolicies"
        " DescribeScheduledActions cloudwatch:GetMetricData GetMetricWidgetImage",
    ),
    Wildcard(
        "metrics know no resource; the namespace narrows it",
        r"\*",
        "cloudwatch:PutMetricData",
        "cloudwatch:namespace",
    ),
    Wildcard(
        "a network interface has no name before it is made; subnets and security groups of the"
        " same statement are named",
        ARN.format("ec2", r"network-interface/\*"),
        ATTACH_NETWORK,
    ),
    Wildcard(
        "interfaces of the named subnets are handed to the one service",
        ARN.format("ec2", r"network-interface/\*"),
        HAND_INTERFACE,
        "ec2:AuthorizedService ec2:Subnet",
    ),
    Wildcard(
        "interfaces of the environment's VPC alone are handed over",
        ARN.format("ec2", r"network-interface/\*"),
        HAND_INTERFACE,
        "ec2:Vpc",
    ),
    Wildcard(
        "a key's id is known only after its creation; its alias narrows it, and what its statement"
        " says beside it: the service, the algorithm, or a resource of AWS",
        KEY,
        "kms:CreateGrant Decrypt DescribeKey Encrypt GenerateDataKey GetKeyPolicy"
        " GetKeyRotationStatus GetPublicKey Sign",
        "kms:ResourceAliases",
    ),
    Wildcard(
        "the id of another account's key is not known; the bucket whose objects it decrypts,"
        " through S3, narrows it",
        KEY,
        "kms:Decrypt",
        "kms:EncryptionContext:aws:s3:arn kms:ViaService",
    ),
    Wildcard(
        "objects under one prefix of the artifact bucket: what is read or built has no name before"
        " it is there",
        BUCKET + r"/[a-z-]+/([A-Za-z0-9-]+/)*\*",
        "s3:AbortMultipartUpload DeleteObject GetObject GetObjectVersion PutObject",
    ),
    Wildcard(
        "the mark of `roundhouse prune` on objects under one prefix",
        BUCKET + r"/(checkpoints|engines|networks)/\*",
        "s3:DeleteObjectTagging GetObjectTagging PutObjectTagging",
    ),
    Wildcard(
        "sources of a bucket that the environment names: a prefix of it, read only",
        r"arn:aws[a-z-]*:s3:::[a-z0-9.-]+/.*\*",
        "s3:GetObject",
        "aws:ResourceAccount",
    ),
    Wildcard(
        "a log group, in the form that IAM knows it by, its streams, each named by its service"
        " when it begins, and groups of recommendation jobs' endpoints",
        ARN.format("logs", "log-group:/aws/[A-Za-z0-9/-]+")
        + r"(:(log-stream:([A-Za-z0-9-]+)?)?|/sm-epc-(\*:)?)\*",
        "logs:CreateLogGroup CreateLogStream DescribeLogStreams PutLogEvents",
    ),
    Wildcard(
        "logs of build projects and of training jobs, in both forms that IAM knows; read only",
        ARN.format("logs", "log-group:/aws/")
        + r"(codebuild/roundhouse-[a-z0-9-]+-build-\*|sagemaker/TrainingJobs)(:\*)?",
        "logs:DescribeLogStreams GetLogEvents",
    ),
    Wildcard(
        "executions of one state machine, each named when it begins",
        ARN.format("states", r"(execution|mapRun):roundhouse-[a-z0-9-]+[/:]\*"),
        "states:DescribeExecution GetExecutionHistory ListExecutions ListMapRuns StopExecution",
    ),
    Wildcard(
        "this environment's training jobs, and the models that recommendation jobs measure",
        ARN.format("sagemaker", r"(training-job|model)/roundhouse-[a-z0-9-]+--\*"),
        "sagemaker:AddTags CreateTrainingJob DescribeModel DescribeTrainingJob StopTrainingJob",
    ),
    Wildcard(
        "what AWS makes and deletes for the benchmarks of recommendation jobs",
        ARN.format("sagemaker", r"(endpoint|endpoint-config|model)/sm-epc-\*"),
        "sagemaker:CreateEndpoint CreateEndpointConfig CreateModel DeleteEndpoint"
        " DeleteEndpointConfig DeleteModel DescribeEndpoint DescribeEndpointConfig DescribeModel"
        " InvokeEndpoint",
    ),
    Wildcard(
        "endpoints of this environment, whose files come and go; read only",
        ARN.format("sagemaker", r"(endpoint|endpoint-config|inference-component|model)/[a-z0-9-]+-")
        + r"\*",
        "sagemaker:DescribeEndpoint DescribeEndpointConfig DescribeInferenceComponent"
        " DescribeModel ListTags",
    ),
    Wildcard(
        "stacks of this environment, whose ids CloudFormation makes",
        ARN.format("cloudformation", r"stack/roundhouse-[a-z0-9-]+-\*/\*"),
        "cloudformation:DescribeStackResources DescribeStacks GetTemplate"
        " UpdateTerminationProtection",
    ),
    Wildcard(
        "alarms are listed by state and by the beginning of their names; read only",
        ARN.format("cloudwatch", r"alarm:([a-z0-9-]+-)?\*"),
        "cloudwatch:DescribeAlarmHistory DescribeAlarms",
    ),
    Wildcard(
        "the environment's build projects, of which it has up to four",
        ARN.format("codebuild", r"project/roundhouse-[a-z0-9-]+-build-\*"),
        "codebuild:BatchGetBuilds BatchGetProjects ListBuildsForProject StopBuild",
    ),
    Wildcard(
        "the environment's image repositories; read only",
        ARN.format("ecr", r"repository/roundhouse-[a-z0-9-]+/\*"),
        "ecr:DescribeImages",
    ),
)


def _metadata(statements: Sequence[Mapping[str, Any]], **rules: str) -> dict[str, Any] | None:
    """Return cdk-nag's metadata of a role's wildcards, and of `rules` by cdk-nag's id, such as S1.

    None where nothing needs a reason.
    """
    found: dict[str, set[str]] = {}
    for why, arn in _wildcards(statements):
        found.setdefault(why, set()).add(f"Resource::{arn}")
    granular = [
        {"id": "AwsSolutions-IAM5", "reason": why, "applies_to": sorted(findings)}
        for why, findings in found.items()
    ]
    whole = [{"id": f"AwsSolutions-{rule}", "reason": reason} for rule, reason in rules.items()]
    return {"rules_to_suppress": [*whole, *granular]} if whole or granular else None


def add_metadata(
    construct: IConstruct, statements: Sequence[Mapping[str, Any]] = (), **rules: str
) -> None:
    """Write beside a construct's resource why wildcards may stand, and rules do not apply."""
    if (found := _metadata(statements, **rules)) is not None:
        cast("CfnResource", construct.node.default_child).add_metadata("cdk_nag", found)


def _wildcards(statements: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield (reason, ARN) of the wildcards of statements that an entry covers."""
    for statement in statements:
        conditions = statement.get("Condition", {}).values()
        keys = frozenset(key for operator in conditions for key in operator)
        for arn in statement["Resource"]:
            for wildcard in WILDCARDS if isinstance(arn, str) and "*" in arn else ():
                if wildcard.covers(frozenset(statement["Action"]), arn, keys):
                    yield wildcard.why, arn
