"""What roles of GitHub's workflows may read in an environment, and what those who plan may."""

from __future__ import annotations

from collections.abc import Mapping

from onboarding import names
from onboarding.environment_spec import EnvironmentSpec
from onboarding.platform import aws_partition
from stacks.access import arns
from stacks.access.policies import Statement, allow, key_use
from stacks.builds.signing import function_arn

ENGINES = f"{names.ENGINES_PREFIX}/*"


def plan_statements(environment: EnvironmentSpec) -> tuple[Statement, ...]:
    """What is deployed and runs, without a byte of any object."""
    return (
        stack_list(),
        stack_reads(environment, "DescribeStacks", "GetTemplate"),
        allow(
            "ListEngines",
            ["s3:ListBucket"],
            [arns.bucket(environment)],
            {"StringLike": {"s3:prefix": ENGINES}},
        ),
        _endpoint_reads(environment, {}),
        _scaling_reads(),
        alarm_reads(environment, "DescribeAlarms"),
    )


def drift_statements(environment: EnvironmentSpec) -> tuple[Statement, ...]:
    """Everything that our templates make, as it is now, and AWS's price list. Code of main asks."""
    return (
        *bucket_reads(environment, [ENGINES]),
        *key_use(environment, ["kms:Decrypt"]),
        stack_list(),
        stack_reads(environment, "DescribeStackResources", "DescribeStacks", "GetTemplate"),
        _endpoint_reads(environment, {"InferenceComponent": "inference-component"}, "ListTags"),
        _scaling_reads(),
        alarm_reads(environment, "DescribeAlarms"),
        *_shared_reads(environment),
        allow("ReadPrices", ["pricing:GetProducts"], ["*"]),
    )


def _endpoint_reads(
    environment: EnvironmentSpec, others: Mapping[str, str], *verbs: str
) -> Statement:
    """Describe endpoints and what they are made of, `others` too: kinds, and their ARNs' words."""
    kinds = {"Endpoint": "endpoint", "EndpointConfig": "endpoint-config", **others,
             "Model": "model"}  # fmt: skip
    prefix = names.endpoint_name(environment, "*")
    return allow(
        "ReadEndpoints",
        [f"sagemaker:{verb}" for verb in (*(f"Describe{kind}" for kind in kinds), *verbs)],
        [arns.arn(environment, "sagemaker", f"{kind}/{prefix}") for kind in kinds.values()],
    )


def _scaling_reads() -> Statement:
    kinds = ("ScalableTargets", "ScalingPolicies", "ScheduledActions")
    return allow(
        "ReadScaling", [f"application-autoscaling:Describe{kind}" for kind in kinds], ["*"]
    )


def _shared_reads(environment: EnvironmentSpec) -> tuple[Statement, ...]:
    """What the stacks beside the endpoints make."""
    own = names.stack_name(environment, "*")
    partition, account = aws_partition(environment.region), environment.account
    dashboards = f"arn:{partition}:cloudwatch::{account}:dashboard/roundhouse-{environment.name}*"
    aliases = [arns.key_alias(environment), arns.signing_key_alias(environment)]
    machine = arns.arn(environment, "states", f"stateMachine:{names.build_machine(environment)}")
    signers = [
        function_arn(environment, name)
        for name in (names.signer(environment), names.checkpoint_signer(environment))
    ]
    operations = {
        "ReadDashboards": (["cloudwatch:GetDashboard"], [dashboards]),
        "ReadRoles": (
            [
                "iam:GetRole",
                "iam:GetRolePolicy",
                "iam:ListAttachedRolePolicies",
                "iam:ListRolePolicies",
            ],
            [role_arn(environment, own)],
        ),
        "ReadBucketSettings": (
            ["s3:GetBucketPolicy", "s3:GetBucketPublicAccessBlock", "s3:GetBucketVersioning"],
            [arns.bucket(environment)],
        ),
        "ListLogs": (["logs:DescribeLogGroups"], ["*"]),
        "ReadTopics": (
            ["sns:GetTopicAttributes", "sns:ListSubscriptionsByTopic"],
            [arns.alarm_topic(environment), arns.answer_topic(environment)],
        ),
        "ReadRepositories": (["ecr:DescribeRepositories"], [image_repositories(environment)]),
        "ReadProjects": (["codebuild:BatchGetProjects"], [project(environment, "*")]),
        "ReadSigner": (["lambda:GetFunction"], signers),
        "ReadMachine": (["states:DescribeStateMachine"], [machine]),
    }
    if environment.alarm_slack is not None:
        operations["ReadSlackChannel"] = (["chatbot:DescribeSlackChannelConfigurations"], ["*"])
    return (
        *(allow(sid, actions, resources) for sid, (actions, resources) in operations.items()),
        allow(
            "ReadKeySettings",
            ["kms:GetKeyPolicy", "kms:GetKeyRotationStatus"],
            [arns.arn(environment, "kms", "key/*")],
            {"ForAnyValue:StringEquals": {"kms:ResourceAliases": aliases}},
        ),
    )


def image_repositories(environment: EnvironmentSpec) -> str:
    """Return the pattern of the environment's image repositories."""
    return arns.arn(environment, "ecr", f"repository/{names.repository(environment, '*')}")


def bucket_reads(environment: EnvironmentSpec, paths: list[str]) -> tuple[Statement, ...]:
    """Read these objects, and list the bucket."""
    objects = [arns.bucket_object(environment, path) for path in paths]
    return (
        allow("ReadObjects", ["s3:GetObject"], objects),
        allow("ListBucket", ["s3:ListBucket"], [arns.bucket(environment)]),
    )


def stack_list() -> Statement:
    """List the stacks of the account, which knows no resource."""
    return allow("ListStacks", ["cloudformation:ListStacks"], ["*"])


def stack_reads(environment: EnvironmentSpec, *operations: str) -> Statement:
    """Call these operations on the environment's stacks."""
    stacks = arns.arn(
        environment, "cloudformation", f"stack/{names.stack_name(environment, '*')}/*"
    )
    return allow("UseStacks", [f"cloudformation:{name}" for name in operations], [stacks])


def alarm_reads(environment: EnvironmentSpec, *operations: str) -> Statement:
    """Alarms are listed by state and by the beginning of their names, so all of an account."""
    alarms = arns.arn(environment, "cloudwatch", "alarm:*")
    return allow("ReadAlarms", [f"cloudwatch:{name}" for name in operations], [alarms])


def project(environment: EnvironmentSpec, route: str) -> str:
    """Return the ARN of a CodeBuild project by its build route, or a pattern of them."""
    return arns.arn(
        environment, "codebuild", f"project/{names.builder_project(environment, route)}"
    )


def role_arn(environment: EnvironmentSpec, name: str) -> str:
    """Return the ARN of a role of the account by its name."""
    return f"arn:{aws_partition(environment.region)}:iam::{environment.account}:role/{name}"
