"""The wildcards that may stand in our policies, each with its reason and what narrows it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from stacks.builds.signing import ADMINISTRATION


@dataclass(frozen=True, kw_only=True)
class Reasoned:
    """A wildcard that may stand.

    Whose statements, on which resources, for which actions, under which conditions, and why.
    """

    why: str
    resource: str
    """A pattern of the whole resource."""
    actions: frozenset[str]
    conditions: frozenset[str] = frozenset()
    """Condition keys that must narrow it."""
    only_in: frozenset[str] = frozenset()
    """Types of resource; default: roles, and policies beside them."""

    def covers(
        self, resource_type: str, actions: tuple[str, ...], resource: str, keys: frozenset[str]
    ) -> bool:
        """Whether a statement's wildcard is this one."""
        where = self.only_in or frozenset({"AWS::IAM::Policy", "AWS::IAM::Role"})
        named = re.fullmatch(self.resource, resource) is not None
        return (
            resource_type in where
            and named
            and set(actions) <= self.actions
            and self.conditions <= keys
        )


ARN = r"arn:aws:{service}:[a-z0-9-]+:[0-9]{{12}}:"
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

REASONED = (
    Reasoned(
        why="the registry's log-in knows no resource; it opens only what the other statements name",
        resource=r"\*",
        actions=frozenset({"ecr:GetAuthorizationToken"}),
    ),
    Reasoned(
        why="metrics know no resource; the namespace narrows it",
        resource=r"\*",
        actions=frozenset({"cloudwatch:PutMetricData"}),
        conditions=frozenset({"cloudwatch:namespace"}),
    ),
    Reasoned(
        why="EC2's describe actions know no resource; they read only",
        resource=r"\*",
        actions=frozenset(f"ec2:Describe{noun}" for noun in DESCRIBED),
    ),
    Reasoned(
        why=(
            "a network interface has no name before it is made; subnets and security groups of the"
            " same statement are named"
        ),
        resource=ARN.format(service="ec2") + r"network-interface/\*",
        actions=frozenset(INTERFACES),
    ),
    Reasoned(
        why=(
            "the key's id is known only after its creation; its alias and the one service that may"
            " use it narrow it"
        ),
        resource=ARN.format(service="kms") + r"key/\*",
        actions=KEY_USE,
        conditions=frozenset({"kms:ResourceAliases", "kms:ViaService"}),
    ),
    Reasoned(
        why="the same key; a grant for a resource of AWS alone, since no service stands between",
        resource=ARN.format(service="kms") + r"key/\*",
        actions=frozenset({"kms:CreateGrant"}),
        conditions=frozenset({"kms:GrantIsForAWSResource", "kms:ResourceAliases"}),
    ),
    Reasoned(
        why="the same key; SageMaker itself asks for it, so no service stands between",
        resource=ARN.format(service="kms") + r"key/\*",
        actions=frozenset({"kms:DescribeKey", "kms:Encrypt"}),
        conditions=frozenset({"kms:ResourceAliases"}),
    ),
    Reasoned(
        why="the signing key's id is known only after its creation; alias and algorithm narrow it",
        resource=ARN.format(service="kms") + r"key/\*",
        actions=frozenset({"kms:Sign"}),
        conditions=frozenset({"kms:ResourceAliases", "kms:SigningAlgorithm"}),
    ),
    Reasoned(
        why="the same key's public half, which is no secret",
        resource=ARN.format(service="kms") + r"key/\*",
        actions=frozenset({"kms:GetPublicKey"}),
        conditions=frozenset({"kms:ResourceAliases"}),
    ),
    Reasoned(
        why=(
            "objects under one prefix of the artifact bucket: what is read or built has no name"
            " before it is there"
        ),
        resource=r"arn:aws:s3:::roundhouse-[a-z0-9-]+/[a-z-]+/([A-Za-z0-9-]+/)*\*",
        actions=OBJECTS,
    ),
    Reasoned(
        why="sources of a bucket that the environment names: a prefix of it, read only",
        resource=r"arn:aws:s3:::company-models/nlp/\*",
        actions=frozenset({"s3:GetObject"}),
        conditions=frozenset({"aws:ResourceAccount"}),
    ),
    Reasoned(
        why=(
            "a log group, in the form that IAM knows it by, its streams, each named by its"
            " service when it begins, and groups of recommendation jobs' endpoints"
        ),
        resource=ARN.format(service="logs")
        + r"log-group:/aws/[A-Za-z0-9/-]+(:(log-stream:([A-Za-z0-9-]+)?)?|--(\*:)?)\*",
        actions=STREAMS,
    ),
    Reasoned(
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
    Reasoned(
        why="this environment's training jobs, and what its recommendation jobs make",
        resource=ARN.format(service="sagemaker")
        + r"(training-job|endpoint|endpoint-config|model)/roundhouse-[a-z0-9-]+--\*",
        actions=BENCHMARKS
        | {"sagemaker:AddTags"}
        | {f"sagemaker:{verb}TrainingJob" for verb in ("Create", "Describe", "Stop")},
    ),
    Reasoned(
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
    Reasoned(
        why="Application Auto Scaling's describe actions know no resource; they read only",
        resource=r"\*",
        actions=frozenset(
            f"application-autoscaling:Describe{noun}"
            for noun in ("ScalableTargets", "ScalingPolicies", "ScheduledActions")
        ),
    ),
    Reasoned(
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
    Reasoned(
        why="endpoints of this environment, whose files come and go; read only",
        resource=ARN.format(service="sagemaker")
        + r"(endpoint|endpoint-config|inference-component|model)/[a-z0-9-]+-\*",
        actions=frozenset(
            f"sagemaker:{name}"
            for name in (*(f"Describe{kind}" for kind in DESCRIBED_KINDS), "ListTags")
        ),
    ),
    Reasoned(
        why="roles of this environment's stacks, whose names CloudFormation ends; read only",
        resource=r"arn:aws:iam::[0-9]{12}:role/roundhouse-[a-z0-9-]+-\*",
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
    Reasoned(
        why="dashboards of this environment and its endpoints; read only",
        resource=r"arn:aws:cloudwatch::[0-9]{12}:dashboard/roundhouse-[a-z0-9-]+\*",
        actions=frozenset({"cloudwatch:GetDashboard"}),
    ),
    Reasoned(
        why="the ids of the environment's keys are known only after their creation; read only",
        resource=ARN.format(service="kms") + r"key/\*",
        actions=frozenset({"kms:GetKeyPolicy", "kms:GetKeyRotationStatus"}),
        conditions=frozenset({"kms:ResourceAliases"}),
    ),
    Reasoned(
        why="quotas count the instances of the whole account and region; read only",
        resource=ARN.format(service="sagemaker") + r"(endpoint|endpoint-config|training-job)/\*",
        actions=frozenset(
            f"sagemaker:Describe{noun}" for noun in ("Endpoint", "EndpointConfig", "TrainingJob")
        ),
    ),
    Reasoned(
        why="alarms are listed by state and by the beginning of their names; read only",
        resource=ARN.format(service="cloudwatch") + r"alarm:\*",
        actions=frozenset({"cloudwatch:DescribeAlarmHistory", "cloudwatch:DescribeAlarms"}),
    ),
    Reasoned(
        why="alarms of this environment's endpoints, whose files come and go; read only",
        resource=ARN.format(service="cloudwatch") + r"alarm:[a-z0-9-]+-\*",
        actions=frozenset({"cloudwatch:DescribeAlarms"}),
    ),
    Reasoned(
        why="metrics and their pictures know no resource; read only",
        resource=r"\*",
        actions=frozenset({"cloudwatch:GetMetricData", "cloudwatch:GetMetricWidgetImage"}),
    ),
    Reasoned(
        why="configurations of chat channels are listed; read only",
        resource=r"\*",
        actions=frozenset({"chatbot:DescribeSlackChannelConfigurations"}),
    ),
    Reasoned(
        why="the mark of `roundhouse prune` on objects under one prefix",
        resource=r"arn:aws:s3:::roundhouse-[a-z0-9-]+/(checkpoints|engines|networks)/\*",
        actions=frozenset(f"s3:{verb}ObjectTagging" for verb in ("Delete", "Get", "Put")),
    ),
    Reasoned(
        why=(
            "the id of another account's key is not known; the bucket whose objects it decrypts,"
            " through S3, narrows it"
        ),
        resource=ARN.format(service="kms") + r"key/\*",
        actions=frozenset({"kms:Decrypt"}),
        conditions=frozenset({"kms:EncryptionContext:aws:s3:arn", "kms:ViaService"}),
    ),
    Reasoned(
        why="a key's own policy is about that key alone; one role, and the bucket's objects",
        resource=r"\*",
        actions=frozenset({"kms:Decrypt"}),
        conditions=frozenset({"aws:PrincipalArn", "kms:EncryptionContext:aws:s3:arn"}),
        only_in=frozenset({"AWS::KMS::Key"}),
    ),
    Reasoned(
        why="what is promoted, for one role that promotes it to another account",
        resource=r"arn:aws:s3:::roundhouse-[a-z0-9-]+/(checkpoints|engines|networks)/\*",
        actions=frozenset({"s3:GetObject"}),
        conditions=frozenset({"aws:PrincipalArn"}),
        only_in=frozenset({"AWS::S3::BucketPolicy"}),
    ),
    Reasoned(
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
    Reasoned(
        why="logs of those projects and of training jobs, in both forms that IAM knows; read only",
        resource=ARN.format(service="logs")
        + r"log-group:/aws/(codebuild/roundhouse-[a-z0-9-]+-build-\*|sagemaker/TrainingJobs)(:\*)?",
        actions=frozenset({"logs:DescribeLogStreams", "logs:GetLogEvents"}),
    ),
    Reasoned(
        why="the environment's image repositories; read only",
        resource=ARN.format(service="ecr") + r"repository/roundhouse-[a-z0-9-]+/\*",
        actions=frozenset({"ecr:DescribeImages", "ecr:DescribeRepositories"}),
    ),
    Reasoned(
        why=(
            "a key's own policy is about that key alone, and without its account nobody could ever"
            " manage it"
        ),
        resource=r"\*",
        actions=frozenset({"kms:*"}),
        only_in=frozenset({"AWS::KMS::Key"}),
    ),
    Reasoned(
        why="the signing key's own policy: what the account may do with it, signing left out",
        resource=r"\*",
        actions=frozenset(ADMINISTRATION),
        only_in=frozenset({"AWS::KMS::Key"}),
    ),
    Reasoned(
        why="the signing key's own policy: one role signs, by one algorithm",
        resource=r"\*",
        actions=frozenset({"kms:Sign"}),
        conditions=frozenset({"aws:PrincipalArn", "kms:SigningAlgorithm"}),
        only_in=frozenset({"AWS::KMS::Key"}),
    ),
    Reasoned(
        why=(
            "a key's own policy is about that key alone; AWS's documented statement for alarms to"
            " an encrypted topic"
        ),
        resource=r"\*",
        actions=frozenset({"kms:Decrypt", "kms:GenerateDataKey*"}),
        conditions=frozenset({"aws:SourceAccount", "aws:SourceArn"}),
        only_in=frozenset({"AWS::KMS::Key"}),
    ),
    Reasoned(
        why=(
            "an endpoint's policy only narrows what the roles that use it may do, to this account's"
            " principals"
        ),
        resource=r"\*",
        actions=frozenset({"*"}),
        conditions=frozenset({"aws:PrincipalAccount"}),
        only_in=frozenset({"AWS::EC2::VPCEndpoint"}),
    ),
    Reasoned(
        why=(
            "the way into the VPC opens the artifact bucket's objects, which the roles' own"
            " statements narrow"
        ),
        resource=r"arn:aws:s3:::roundhouse-[a-z0-9-]+/\*",
        actions=frozenset({*OBJECTS, "s3:GetBucketLocation", "s3:ListBucket"}),
        conditions=frozenset({"aws:PrincipalAccount"}),
        only_in=frozenset({"AWS::EC2::VPCEndpoint"}),
    ),
    Reasoned(
        why="the same way opens what the environment names of buckets of others, read only",
        resource=r"arn:aws:s3:::company-models/nlp/\*",
        actions=frozenset({"s3:GetObject", "s3:ListBucket"}),
        conditions=frozenset({"aws:PrincipalAccount"}),
        only_in=frozenset({"AWS::EC2::VPCEndpoint"}),
    ),
    Reasoned(
        why="layers of images lie in ECR's own bucket, under names that ECR alone knows",
        resource=r"arn:aws:s3:::prod-[a-z0-9-]+-starport-layer-bucket/\*",
        actions=frozenset({"s3:GetObject"}),
        only_in=frozenset({"AWS::EC2::VPCEndpoint"}),
    ),
    Reasoned(
        why=(
            "a build in the VPC fetches CodeBuild's agent from CodeBuild's own bucket, under names"
            " that CodeBuild alone knows"
        ),
        resource=r"arn:aws:s3:::codefactory-[a-z0-9-]+-prod-default-build-agent-executor/\*",
        actions=frozenset({"s3:GetObject"}),
        only_in=frozenset({"AWS::EC2::VPCEndpoint"}),
    ),
)
