"""What roles of GitHub's workflows may read in an environment, and what those who plan may."""

from __future__ import annotations

from onboarding import arns, names
from onboarding.environment_spec import EnvironmentSpec
from onboarding.platform import aws_partition
from roundhouse_cdk.builds.signing import function_arn
from roundhouse_cdk.statements import Statement, allow, key_use

ENGINES = f"{names.ENGINES_PREFIX}/*"


def plan_statements(environment: EnvironmentSpec) -> tuple[Statement, ...]:
    """What is deployed and runs, without a byte of any object."""
    listed = {"StringLike": {"s3:prefix": ENGINES}}
    described = "sagemaker:DescribeEndpoint DescribeEndpointConfig DescribeModel"
    return (
        stack_list(),
        stack_reads(environment, "DescribeStacks GetTemplate"),
        allow("ListEngines", "s3:ListBucket", [arns.bucket(environment)], listed),
        _endpoint_reads(environment, described, "endpoint", "endpoint-config", "model"),
        _scaling_reads(),
        alarm_reads(environment, "DescribeAlarms"),
    )


def drift_statements(environment: EnvironmentSpec) -> tuple[Statement, ...]:
    """Everything that our templates make, as it is now, and AWS's price list. Code of main asks."""
    described = (
        "sagemaker:DescribeEndpoint DescribeEndpointConfig DescribeInferenceComponent"
        " DescribeModel ListTags"
    )
    kinds = ("endpoint", "endpoint-config", "inference-component", "model")
    return (
        *bucket_reads(environment, [ENGINES]),
        *key_use(environment, ["kms:Decrypt"]),
        stack_list(),
        stack_reads(environment, "DescribeStackResources DescribeStacks GetTemplate"),
        _endpoint_reads(environment, described, *kinds),
        _scaling_reads(),
        alarm_reads(environment, "DescribeAlarms"),
        *_shared_reads(environment),
        allow("ReadPrices", "pricing:GetProducts", ["*"]),
    )


def _endpoint_reads(environment: EnvironmentSpec, actions: str, *kinds: str) -> Statement:
    """Describe endpoints and what they are made of; `kinds` are their ARNs' words."""
    prefix = names.endpoint_name(environment, "*")
    resources = [arns.arn(environment, "sagemaker", f"{kind}/{prefix}") for kind in kinds]
    return allow("ReadEndpoints", actions, resources)


def _scaling_reads() -> Statement:
    return allow(
        "ReadScaling",
        "application-autoscaling:DescribeScalableTargets DescribeScalingPolicies"
        " DescribeScheduledActions",
        ["*"],
    )


def _shared_reads(environment: EnvironmentSpec) -> tuple[Statement, ...]:
    """What the stacks beside the endpoints make."""
    partition, account = aws_partition(environment.region), environment.account
    dashboards = f"arn:{partition}:cloudwatch::{account}:dashboard/roundhouse-{environment.name}*"
    signers = (names.signer(environment), names.checkpoint_signer(environment))
    aliases = [arns.key_alias(environment), arns.signing_key_alias(environment)]
    roles = arns.role(environment, names.stack_name(environment, "*"))
    operations = {
        "ReadDashboards": ("cloudwatch:GetDashboard", [dashboards]),
        "ReadRoles": (
            "iam:GetRole GetRolePolicy ListAttachedRolePolicies ListRolePolicies",
            [roles],
        ),
        "ReadBucketSettings": (
            "s3:GetBucketPolicy GetBucketPublicAccessBlock GetBucketVersioning",
            [arns.bucket(environment)],
        ),
        "ListLogs": ("logs:DescribeLogGroups", ["*"]),
        "ReadTopics": (
            "sns:GetTopicAttributes ListSubscriptionsByTopic",
            [arns.alarm_topic(environment), arns.answer_topic(environment)],
        ),
        "ReadRepositories": ("ecr:DescribeRepositories", [arns.repository(environment, "*")]),
        "ReadProjects": ("codebuild:BatchGetProjects", [project(environment, "*")]),
        "ReadSigner": ("lambda:GetFunction", [function_arn(environment, it) for it in signers]),
        "ReadMachine": ("states:DescribeStateMachine", [arns.build_machine(environment)]),
    }
    if environment.alarm_slack is not None:
        operations["ReadSlackChannel"] = ("chatbot:DescribeSlackChannelConfigurations", ["*"])
    return (
        *(allow(sid, actions, resources) for sid, (actions, resources) in operations.items()),
        allow(
            "ReadKeySettings",
            "kms:GetKeyPolicy GetKeyRotationStatus",
            [arns.arn(environment, "kms", "key/*")],
            {"ForAnyValue:StringEquals": {"kms:ResourceAliases": aliases}},
        ),
    )


def bucket_reads(environment: EnvironmentSpec, paths: list[str]) -> tuple[Statement, ...]:
    """Read these objects, and list the bucket."""
    return (
        allow("ReadObjects", "s3:GetObject", arns.bucket_objects(environment, paths)),
        allow("ListBucket", "s3:ListBucket", [arns.bucket(environment)]),
    )


def stack_list() -> Statement:
    """List the stacks of the account, which knows no resource."""
    return allow("ListStacks", "cloudformation:ListStacks", ["*"])


def stack_reads(environment: EnvironmentSpec, operations: str) -> Statement:
    """Call these operations on the environment's stacks."""
    stacks = f"stack/{names.stack_name(environment, '*')}/*"
    resources = [arns.arn(environment, "cloudformation", stacks)]
    return allow("UseStacks", f"cloudformation:{operations}", resources)


def alarm_reads(environment: EnvironmentSpec, operations: str) -> Statement:
    """Alarms are listed by state and by the beginning of their names, so all of an account."""
    alarms = arns.arn(environment, "cloudwatch", "alarm:*")
    return allow("ReadAlarms", f"cloudwatch:{operations}", [alarms])


def project(environment: EnvironmentSpec, route: str) -> str:
    """Return the ARN of a CodeBuild project by its build route, or a pattern of them."""
    return arns.arn(
        environment, "codebuild", f"project/{names.builder_project(environment, route)}"
    )
