"""The wildcards in statements of our roles, each with its reason, as cdk-nag's metadata.

cdk-nag reads `Metadata: {cdk_nag: {rules_to_suppress: ...}}` of a resource: it is not imported
here. A wildcard that no entry covers stays a finding of whoever adds cdk-nag to a stage.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Wildcard:
    """A wildcard that may stand: on which resources, for which actions, narrowed by what, and why.

    `resource` is a pattern of the whole ARN; `conditions` are the keys that must narrow it.
    """

    why: str
    resource: str
    actions: frozenset[str]
    conditions: frozenset[str] = frozenset()

    def covers(self, actions: frozenset[str], resource: str, keys: frozenset[str]) -> bool:
        """Return True when a statement's wildcard is this one."""
        named = re.fullmatch(self.resource, resource) is not None
        return named and actions <= self.actions and self.conditions <= keys


ARN = r"arn:aws[a-z-]*:{service}:[a-z0-9-]+:[0-9]{{12}}:"
OBJECTS = frozenset(
    {
        "s3:AbortMultipartUpload",
        "s3:DeleteObject",
        "s3:GetObject",
        "s3:GetObjectVersion",
        "s3:PutObject",
    }
)
KEY_USE = frozenset({"kms:Decrypt", "kms:GenerateDataKey"})
STREAMS = frozenset(
    {"logs:CreateLogGroup", "logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents"}
)
DESCRIBED_KINDS = ("Endpoint", "EndpointConfig", "InferenceComponent", "Model")
DESCRIBED = ("DhcpOptions", "NetworkInterfaces", "SecurityGroups", "Subnets", "Vpcs")
INTERFACES = [
    f"ec2:{verb}NetworkInterface{more}"
    for verb in ("Create", "Delete")
    for more in ("", "Permission")
]
BENCHMARKS = frozenset(
    f"sagemaker:{verb}{noun}"
    for verb in ("Create", "Delete", "Describe")
    for noun in ("Endpoint", "EndpointConfig", "Model")
) | {"sagemaker:InvokeEndpoint"}
"""What recommendation jobs do with what they made."""
OUTPUT = "every build names its own output in S3, which the bucket encrypts by key"
"""Why a project needs no key (CB4)."""

WILDCARDS = (
    Wildcard(
        why="the registry's log-in knows no resource; it opens only what the other statements name",
        resource=r"\*",
        actions=frozenset({"ecr:GetAuthorizationToken"}),
    ),
    Wildcard(
        why="metrics know no resource; the namespace narrows it",
        resource=r"\*",
        actions=frozenset({"cloudwatch:PutMetricData"}),
        conditions=frozenset({"cloudwatch:namespace"}),
    ),
    Wildcard(
        why="EC2's describe actions know no resource; they read only",
        resource=r"\*",
        actions=frozenset(f"ec2:Describe{noun}" for noun in DESCRIBED),
    ),
    Wildcard(
        why=(
            "a network interface has no name before it is made; subnets and security groups of the"
            " same statement are named"
        ),
        resource=ARN.format(service="ec2") + r"network-interface/\*",
        actions=frozenset(INTERFACES),
    ),
    Wildcard(
        why=(
            "the key's id is known only after its creation; its alias and the one service that may"
            " use it narrow it"
        ),
        resource=ARN.format(service="kms") + r"key/\*",
        actions=KEY_USE,
        conditions=frozenset({"kms:ResourceAliases", "kms:ViaService"}),
    ),
    Wildcard(
        why="the same key; a grant for a resource of AWS alone, since no service stands between",
        resource=ARN.format(service="kms") + r"key/\*",
        actions=frozenset({"kms:CreateGrant"}),
        conditions=frozenset({"kms:GrantIsForAWSResource", "kms:ResourceAliases"}),
    ),
    Wildcard(
        why="the same key; SageMaker itself asks for it, so no service stands between",
        resource=ARN.format(service="kms") + r"key/\*",
        actions=frozenset({"kms:DescribeKey", "kms:Encrypt"}),
        conditions=frozenset({"kms:ResourceAliases"}),
    ),
    Wildcard(
        why="the signing key's id is known only after its creation; alias and algorithm narrow it",
        resource=ARN.format(service="kms") + r"key/\*",
        actions=frozenset({"kms:Sign"}),
        conditions=frozenset({"kms:ResourceAliases", "kms:SigningAlgorithm"}),
    ),
    Wildcard(
        why="the same key's public half, which is no secret",
        resource=ARN.format(service="kms") + r"key/\*",
        actions=frozenset({"kms:GetPublicKey"}),
        conditions=frozenset({"kms:ResourceAliases"}),
    ),
    Wildcard(
        why=(
            "objects under one prefix of the artifact bucket: what is read or built has no name"
            " before it is there"
        ),
        resource=r"arn:aws[a-z-]*:s3:::roundhouse-[a-z0-9-]+/[a-z-]+/([A-Za-z0-9-]+/)*\*",
        actions=OBJECTS,
    ),
    Wildcard(
        why="sources of a bucket that the environment names: a prefix of it, read only",
        resource=r"arn:aws[a-z-]*:s3:::[a-z0-9.-]+/.*\*",
        actions=frozenset({"s3:GetObject"}),
        conditions=frozenset({"aws:ResourceAccount"}),
    ),
    Wildcard(
        why=(
            "a log group, in the form that IAM knows it by, its streams, each named by its"
            " service when it begins, and groups of recommendation jobs' endpoints"
        ),
        resource=ARN.format(service="logs")
        + r"log-group:/aws/[A-Za-z0-9/-]+(:(log-stream:([A-Za-z0-9-]+)?)?|/sm-epc-(\*:)?)\*",
        actions=STREAMS,
    ),
    Wildcard(
        why="executions of one state machine, each named when it begins",
        resource=ARN.format(service="states") + r"(execution|mapRun):roundhouse-[a-z0-9-]+[/:]\*",
        actions=frozenset(
            {
                "states:DescribeExecution",
                "states:GetExecutionHistory",
                "states:ListExecutions",
                "states:ListMapRuns",
                "states:StopExecution",
            }
        ),
    ),
    Wildcard(
        why="this environment's training jobs, and the models that recommendation jobs measure",
        resource=ARN.format(service="sagemaker")
        + r"(training-job|model)/roundhouse-[a-z0-9-]+--\*",
        actions=frozenset({"sagemaker:AddTags", "sagemaker:DescribeModel"})
        | {f"sagemaker:{verb}TrainingJob" for verb in ("Create", "Describe", "Stop")},
    ),
    Wildcard(
        why="what AWS makes and deletes for the benchmarks of recommendation jobs",
        resource=ARN.format(service="sagemaker") + r"(endpoint|endpoint-config|model)/sm-epc-\*",
        actions=BENCHMARKS,
    ),
    Wildcard(
        why="lists know no resource; they tell names, states and public prices",
        resource=r"\*",
        actions=frozenset(
            {
                "cloudformation:ListStacks",
                "logs:DescribeLogGroups",
                "pricing:GetProducts",
                "sagemaker:ListEndpoints",
                "sagemaker:ListTrainingJobs",
                "servicequotas:ListAWSDefaultServiceQuotas",
                "servicequotas:ListServiceQuotas",
            }
        ),
    ),
    Wildcard(
        why="Application Auto Scaling's describe actions know no resource; they read only",
        resource=r"\*",
        actions=frozenset(
            f"application-autoscaling:Describe{noun}"
            for noun in ("ScalableTargets", "ScalingPolicies", "ScheduledActions")
        ),
    ),
    Wildcard(
        why="stacks of this environment, whose ids CloudFormation makes",
        resource=ARN.format(service="cloudformation") + r"stack/roundhouse-[a-z0-9-]+-\*/\*",
        actions=frozenset(
            {
                "cloudformation:DescribeStackResources",
                "cloudformation:DescribeStacks",
                "cloudformation:GetTemplate",
                "cloudformation:UpdateTerminationProtection",
            }
        ),
    ),
    Wildcard(
        why="endpoints of this environment, whose files come and go; read only",
        resource=ARN.format(service="sagemaker")
        + r"(endpoint|endpoint-config|inference-component|model)/[a-z0-9-]+-\*",
        actions=frozenset(
            f"sagemaker:{name}"
            for name in (*(f"Describe{kind}" for kind in DESCRIBED_KINDS), "ListTags")
        ),
    ),
    Wildcard(
        why="roles of this environment's stacks, whose names CloudFormation ends; read only",
        resource=r"arn:aws[a-z-]*:iam::[0-9]{12}:role/roundhouse-[a-z0-9-]+-\*",
        actions=frozenset(
            f"iam:{name}"
            for name in (
                "GetRole",
                "GetRolePolicy",
                "ListAttachedRolePolicies",
                "ListRolePolicies",
            )
        ),
    ),
    Wildcard(
        why="dashboards of this environment and its endpoints; read only",
        resource=r"arn:aws[a-z-]*:cloudwatch::[0-9]{12}:dashboard/roundhouse-[a-z0-9-]+\*",
        actions=frozenset({"cloudwatch:GetDashboard"}),
    ),
    Wildcard(
        why="the ids of the environment's keys are known only after their creation; read only",
        resource=ARN.format(service="kms") + r"key/\*",
        actions=frozenset({"kms:GetKeyPolicy", "kms:GetKeyRotationStatus"}),
        conditions=frozenset({"kms:ResourceAliases"}),
    ),
    Wildcard(
        why="quotas count the instances of the whole account and region; read only",
        resource=ARN.format(service="sagemaker") + r"(endpoint|endpoint-config|training-job)/\*",
        actions=frozenset(
            f"sagemaker:Describe{noun}" for noun in ("Endpoint", "EndpointConfig", "TrainingJob")
        ),
    ),
    Wildcard(
        why="alarms are listed by state and by the beginning of their names; read only",
        resource=ARN.format(service="cloudwatch") + r"alarm:\*",
        actions=frozenset({"cloudwatch:DescribeAlarmHistory", "cloudwatch:DescribeAlarms"}),
    ),
    Wildcard(
        why="alarms of this environment's endpoints, whose files come and go; read only",
        resource=ARN.format(service="cloudwatch") + r"alarm:[a-z0-9-]+-\*",
        actions=frozenset({"cloudwatch:DescribeAlarms"}),
    ),
    Wildcard(
        why="metrics and their pictures know no resource; read only",
        resource=r"\*",
        actions=frozenset({"cloudwatch:GetMetricData", "cloudwatch:GetMetricWidgetImage"}),
    ),
    Wildcard(
        why="configurations of chat channels are listed; read only",
        resource=r"\*",
        actions=frozenset({"chatbot:DescribeSlackChannelConfigurations"}),
    ),
    Wildcard(
        why="the mark of `roundhouse prune` on objects under one prefix",
        resource=r"arn:aws[a-z-]*:s3:::roundhouse-[a-z0-9-]+/(checkpoints|engines|networks)/\*",
        actions=frozenset(f"s3:{verb}ObjectTagging" for verb in ("Delete", "Get", "Put")),
    ),
    Wildcard(
        why=(
            "the id of another account's key is not known; the bucket whose objects it decrypts,"
            " through S3, narrows it"
        ),
        resource=ARN.format(service="kms") + r"key/\*",
        actions=frozenset({"kms:Decrypt"}),
        conditions=frozenset({"kms:EncryptionContext:aws:s3:arn", "kms:ViaService"}),
    ),
    Wildcard(
        why="the environment's build projects, of which it has up to four",
        resource=ARN.format(service="codebuild") + r"project/roundhouse-[a-z0-9-]+-build-\*",
        actions=frozenset(
            f"codebuild:{name}"
            for name in (
                "BatchGetBuilds",
                "BatchGetProjects",
                "ListBuildsForProject",
                "StopBuild",
            )
        ),
    ),
    Wildcard(
        why="logs of those projects and of training jobs, in both forms that IAM knows; read only",
        resource=ARN.format(service="logs")
        + r"log-group:/aws/(codebuild/roundhouse-[a-z0-9-]+-build-\*|sagemaker/TrainingJobs)(:\*)?",
        actions=frozenset({"logs:DescribeLogStreams", "logs:GetLogEvents"}),
    ),
    Wildcard(
        why="the environment's image repositories; read only",
        resource=ARN.format(service="ecr") + r"repository/roundhouse-[a-z0-9-]+/\*",
        actions=frozenset({"ecr:DescribeImages", "ecr:DescribeRepositories"}),
    ),
)


def with_reasons(resource: Mapping[str, Any], **rules: str) -> dict[str, Any]:
    """Return a resource with the reasons of its wildcards, and of `rules` by cdk-nag's id."""
    found: dict[str, set[str]] = {}
    for why, arn in _wildcards(resource["Properties"]):
        found.setdefault(why, set()).add(f"Resource::{arn}")
    wild = [
        {"id": "AwsSolutions-IAM5", "reason": why, "applies_to": sorted(findings)}
        for why, findings in found.items()
    ]
    if not wild and not rules:
        return dict(resource)
    metadata = {**resource.get("Metadata", {}), "cdk_nag": suppressions(*wild, **rules)}
    return {**resource, "Metadata": metadata}


def suppressions(*granular: dict[str, Any], **rules: str) -> dict[str, Any]:
    """Return cdk-nag's metadata of rules by id, such as `S1`, with the reason of each."""
    whole = [{"id": f"AwsSolutions-{rule}", "reason": reason} for rule, reason in rules.items()]
    return {"rules_to_suppress": [*whole, *granular]}


def _wildcards(properties: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (reason, ARN) of the wildcards of a role, or of a policy, that an entry covers."""
    documents = [policy["PolicyDocument"] for policy in properties.get("Policies", ())]
    for document in (*documents, properties.get("PolicyDocument", {"Statement": ()})):
        for statement in document["Statement"]:
            conditions = statement.get("Condition", {}).values()
            keys = frozenset(key for operator in conditions for key in operator)
            actions, arns = (_as_list(statement[key]) for key in ("Action", "Resource"))
            for arn in arns:
                for wildcard in WILDCARDS if isinstance(arn, str) and "*" in arn else ():
                    if wildcard.covers(frozenset(actions), arn, keys):
                        yield wildcard.why, arn


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]
