"""What each role of GitHub's workflows may do in an environment.

docs/security.md names what every command calls; `tests/synth/test_access_stack.py` holds both
together.
"""

from __future__ import annotations

from onboarding import names
from onboarding.environment_spec import EnvironmentSpec
from onboarding.text_generation.checkpoint_key import CHECKPOINTS
from stacks.access import arns
from stacks.access.policies import Condition, Statement, allow, key_use, write_once
from stacks.builds.training_states import LOG_GROUP
from stacks.github.reads import (
    ENGINES,
    alarm_reads,
    bucket_reads,
    image_repositories,
    project,
    role_arn,
    stack_list,
    stack_reads,
)
from stacks.images import ROUTE as IMAGES_ROUTE

PARTS: Condition = {"Bool": {"s3:ObjectCreationOperation": "false"}}
"""The request starts a multipart upload or adds a part; its completion is that of `write_once`."""
NETWORKS = f"{names.NETWORKS_PREFIX}/*"
CHECKPOINT_FILES, ADAPTERS = f"{CHECKPOINTS}/*", f"{names.ADAPTERS_PREFIX}/*"
PROMOTED = (ENGINES, NETWORKS, CHECKPOINT_FILES)
SOURCES, IMAGES = f"{names.SOURCES_PREFIX}/*", f"{names.IMAGES_PREFIX}/*"


def build_statements(environment: EnvironmentSpec) -> tuple[Statement, ...]:
    """Sources that are written once, and the machine that builds from them."""
    return (
        *bucket_reads(environment, [ENGINES, CHECKPOINT_FILES, SOURCES]),
        *key_use(environment, ["kms:Decrypt", "kms:GenerateDataKey"]),
        *write_once(environment, [SOURCES]),
        *_machine_use(environment),
        *_interruption(environment),
    )


def deploy_statements(environment: EnvironmentSpec, qualifier: str) -> tuple[Statement, ...]:
    """The CDK's roles, and what a deployment checks with its own credentials.

    `qualifier` is that of the account's `cdk bootstrap`.
    """
    return (
        *bucket_reads(environment, [ENGINES, NETWORKS, CHECKPOINT_FILES, ADAPTERS, SOURCES]),
        *key_use(environment, ["kms:Decrypt", "kms:GenerateDataKey"]),
        *write_once(environment, [SOURCES, ADAPTERS]),
        # An image that is built again under its tag has another digest, which its bill names.
        allow("WriteBills", ["s3:PutObject"], [arns.bucket_object(environment, IMAGES)]),
        allow("LookAtImages", ["ecr:DescribeImages"], [image_repositories(environment)]),
        allow("BuildImages", ["codebuild:StartBuild"], [project(environment, IMAGES_ROUTE)]),
        *_machine_use(environment),
        *_interruption(environment),
        stack_list(),
        stack_reads(
            environment,
            "DescribeStackResources",
            "DescribeStacks",
            "GetTemplate",
            "UpdateTerminationProtection",
        ),
        alarm_reads(environment, "DescribeAlarms"),
        *_quota_reads(environment),
        allow(
            "TagEngines",
            ["s3:DeleteObjectTagging", "s3:GetObjectTagging", "s3:PutObjectTagging"],
            [
                arns.bucket_object(environment, path)
                for path in (ENGINES, NETWORKS, CHECKPOINT_FILES)
            ],
        ),
        allow(
            "LookAtComponents",
            ["sagemaker:DescribeInferenceComponent"],
            [
                arns.arn(
                    environment,
                    "sagemaker",
                    f"inference-component/{names.endpoint_name(environment, '*')}",
                )
            ],
        ),
        allow(
            "AssumeDeploymentRoles",
            ["sts:AssumeRole"],
            [
                role_arn(
                    environment,
                    f"cdk-{qualifier}-{kind}-role-{environment.account}-{environment.region}",
                )
                for kind in ("deploy", "file-publishing", "lookup")
            ],
        ),
    )


def promote_statements(
    environment: EnvironmentSpec, source: EnvironmentSpec
) -> tuple[Statement, ...]:
    """What the environment before built, its alarms, and own objects that are written once."""
    objects = [arns.bucket_object(source, path) for path in PROMOTED]
    is_near = source.account == environment.account
    gate = (
        alarm_reads(source, "DescribeAlarmHistory", "DescribeAlarms")
        if is_near
        else allow(
            "ReadAlarmsBefore", ["sts:AssumeRole"], [names.pipeline_role_arn(source, "gate")]
        )
    )
    return (
        allow("ReadSource", ["s3:GetObject"], objects),
        allow("ListSource", ["s3:ListBucket"], [arns.bucket(source)]),
        allow(
            "UseSourceKey",
            ["kms:Decrypt"],
            [source.kms_key_arn or arns.arn(source, "kms", "key/*")],
            source_key_condition(source),
        ),
        gate,
        *bucket_reads(environment, [*PROMOTED]),
        *key_use(environment, ["kms:Decrypt", "kms:GenerateDataKey"]),
        *write_once(environment, [*PROMOTED]),
        allow(
            "WriteParts",
            ["s3:PutObject"],
            [arns.bucket_object(environment, path) for path in (ENGINES, NETWORKS)],
            PARTS,
        ),
    )


def gate_statements(environment: EnvironmentSpec) -> tuple[Statement, ...]:
    """Alarms, which a promotion to another account asks about."""
    return (alarm_reads(environment, "DescribeAlarmHistory", "DescribeAlarms"),)


def source_key_condition(source: EnvironmentSpec) -> Condition:
    """Return the condition that a key decrypts objects of an environment's bucket alone.

    S3 names the object to KMS, or with a bucket key the bucket. Source: Amazon S3 user guide,
    "Reducing the cost of SSE-KMS with Amazon S3 Bucket Keys".
    """
    bucket = arns.bucket(source)
    return {
        "StringEquals": {"kms:ViaService": f"s3.{source.region}.amazonaws.com"},
        "StringLike": {"kms:EncryptionContext:aws:s3:arn": [bucket, f"{bucket}/*"]},
    }


def _machine_use(environment: EnvironmentSpec) -> tuple[Statement, ...]:
    """Start the state machine's executions and follow them, down to their logs."""
    machine = names.build_machine(environment)
    groups = [
        arns.log_group(environment, f"/aws/codebuild/{names.builder_project(environment, '*')}"),
        arns.log_group(environment, LOG_GROUP),
    ]
    return (
        allow(
            "StartBuilds",
            ["states:StartExecution"],
            [arns.arn(environment, "states", f"stateMachine:{machine}")],
        ),
        allow(
            "FollowBuilds",
            [
                "states:DescribeExecution",
                "states:GetExecutionHistory",
                "states:ListExecutions",
                "states:ListMapRuns",
            ],
            _executions(environment, "execution", "mapRun"),
        ),
        allow("LookAtBuilds", ["codebuild:BatchGetBuilds"], [project(environment, "*")]),
        allow(
            "ReadBuildLogs",
            ["logs:DescribeLogStreams", "logs:GetLogEvents"],
            [form for group in groups for form in (group, f"{group}:*")],
        ),
    )


def _interruption(environment: EnvironmentSpec) -> tuple[Statement, ...]:
    """Stop what was started, when whoever waits for it is interrupted."""
    jobs = f"training-job/{names.training_job_prefix(environment)}*"
    return (
        allow("StopExecutions", ["states:StopExecution"], _executions(environment, "execution")),
        allow(
            "StopBuilds",
            [
                "codebuild:BatchGetProjects",
                "codebuild:ListBuildsForProject",
                "codebuild:StopBuild",
            ],
            [project(environment, "*")],
        ),
        allow("ListJobs", ["sagemaker:ListTrainingJobs"], ["*"]),
        allow(
            "StopJobs",
            ["sagemaker:StopTrainingJob"],
            [arns.arn(environment, "sagemaker", jobs)],
        ),
    )


def _quota_reads(environment: EnvironmentSpec) -> tuple[Statement, ...]:
    """Quotas of the account and region, and every instance there that counts against them."""
    kinds = {
        "DescribeEndpoint": "endpoint",
        "DescribeEndpointConfig": "endpoint-config",
        "DescribeTrainingJob": "training-job",
    }
    return (
        allow(
            "ReadQuotas",
            [
                "sagemaker:ListEndpoints",
                "servicequotas:ListAWSDefaultServiceQuotas",
                "servicequotas:ListServiceQuotas",
            ],
            ["*"],
        ),
        allow(
            "CountInstances",
            [f"sagemaker:{name}" for name in kinds],
            [arns.arn(environment, "sagemaker", f"{kind}/*") for kind in kinds.values()],
        ),
    )


def _executions(environment: EnvironmentSpec, *kinds: str) -> list[str]:
    machine = names.build_machine(environment)
    return [
        arns.arn(environment, "states", f"{kind}:{machine}{rest}")
        for kind in kinds
        for rest in (":*", "/*")
    ]
