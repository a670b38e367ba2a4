"""What the roles of the builds may do.

A project's, the training jobs', Inference Recommender's jobs', the state machine's, the signers',
and what the signing key's policy says of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

from onboarding import arns, names
from onboarding.environment_spec import EnvironmentSpec, ServingImage
from onboarding.platform import aws_partition
from onboarding.text_generation import checkpoint_key
from onboarding.text_generation.checkpoint_key import QUANTIZER, QUANTIZER_IMAGE
from roundhouse_cdk.build_project import BuildRoute, log_group_name
from roundhouse_cdk.statements import (
    HOST_METRICS,
    LOG_ACTIONS,
    PULL,
    REGISTRY_LOG_IN,
    TRAINING_LOG_GROUP,
    Statements,
    action_names,
    allow,
    bucket_listing,
    key_use,
    log_stream_writes,
    network_interfaces,
    object_reads,
    object_writes,
    output_key_encryption,
    pass_role,
    source_reads,
    topic_publish,
    volume_key_grant,
    write_once,
)

ENGINES = f"{names.ENGINES_PREFIX}/*"
"""What builds look up; the signer alone writes there."""
PUBLISHED = (f"{names.NETWORKS_PREFIX}/*", f"{names.CANDIDATES_PREFIX}/*")
"""What every build publishes, and replaces never."""
SIGNING_ALGORITHM = "ECDSA_SHA_256"
CHECKPOINTS = f"{checkpoint_key.CHECKPOINTS}/*"
"""What builds of checkpoints look up; the signer alone writes there."""
OF_CHECKPOINTS = (f"{names.CANDIDATES_PREFIX}/*",)
"""What builds of checkpoints publish, and replace never."""
TIMING_CACHES = f"{names.TIMING_CACHES_PREFIX}/*"
SOURCES = f"{names.SOURCES_PREFIX}/*"
ONNX = f"{names.ONNX_PREFIX}/*"
JOBS = f"{names.JOBS_PREFIX}/*"
PAYLOADS = f"{names.JOBS_PREFIX}/payloads/*"
RECOMMENDATION_LOG_GROUP = "/aws/sagemaker/InferenceRecommendationsJobs"
"""Where SageMaker writes the log of every recommendation job, a stream a job."""
BENCHMARK_PREFIX = "sm-epc-"
"""Of what AWS names for the benchmarks of a recommendation job: models, configs, endpoints, logs.

Source: SageMaker developer guide, "Troubleshoot Inference Recommender errors".
"""


def project_statements(environment: EnvironmentSpec, route: BuildRoute) -> Statements:
    """A CodeBuild project's: its image, sources, what is built, and its own log."""
    reads: tuple[str, ...] = (ENGINES, *PUBLISHED, TIMING_CACHES)
    published: tuple[str, ...] = PUBLISHED
    caches = object_writes(environment, [TIMING_CACHES])
    if route.name == QUANTIZER:
        reads, published, caches = (CHECKPOINTS, *OF_CHECKPOINTS), OF_CHECKPOINTS, ()
    return (
        allow("PullImage", PULL, [arns.repository(environment, route.image)]),
        REGISTRY_LOG_IN,
        *object_reads(environment, [SOURCES, ONNX, *reads]),
        *bucket_listing(environment),
        *write_once(environment, published),
        *caches,
        *key_use(environment, ["kms:Decrypt", "kms:GenerateDataKey"]),
        *source_reads(environment),
        *log_stream_writes(environment, log_group_name(environment, route.name)),
        *network_interfaces(environment, "codebuild.amazonaws.com"),
    )


def job_statements(environment: EnvironmentSpec, *images: str) -> Statements:
    """The training jobs': a project's, and unfinished work; one log group serves all jobs."""
    return (
        allow("PullImage", PULL, [arns.repository(environment, image) for image in images]),
        REGISTRY_LOG_IN,
        *object_reads(
            environment,
            [
                *(SOURCES, ONNX, ENGINES, *PUBLISHED, TIMING_CACHES, JOBS),
                *([CHECKPOINTS] if QUANTIZER_IMAGE in images else []),
            ],
        ),
        *bucket_listing(environment),
        *write_once(environment, PUBLISHED),
        *object_writes(environment, [TIMING_CACHES, JOBS]),
        *key_use(environment, ["kms:Decrypt", "kms:GenerateDataKey"]),
        *output_key_encryption(environment),
        *source_reads(environment),
        *_job_logs(environment, TRAINING_LOG_GROUP),
        HOST_METRICS,
        *network_interfaces(environment),
    )


def recommender_statements(environment: EnvironmentSpec) -> Statements:
    """Inference Recommender's jobs': an endpoint for each benchmark, and its load.

    The same role runs a benchmark's instance, so it holds what an endpoint's does. AWS names a
    managed policy for such jobs and no exact set.
    """
    given = arns.arn(environment, "sagemaker", f"model/{names.training_job_prefix(environment)}*")
    made = [
        arns.arn(environment, "sagemaker", f"{kind}/{BENCHMARK_PREFIX}*")
        for kind in ("model", "endpoint-config", "endpoint")
    ]
    actions = (
        "sagemaker:CreateModel CreateEndpointConfig CreateEndpoint DescribeModel"
        " DescribeEndpointConfig DescribeEndpoint DeleteModel DeleteEndpointConfig DeleteEndpoint"
        " InvokeEndpoint"
    )
    group = arns.log_group(environment, f"/aws/sagemaker/Endpoints/{BENCHMARK_PREFIX}*")
    return (
        allow(
            "PullImage",
            PULL,
            [arns.repository(environment, name) for name in get_args(ServingImage)],
        ),
        REGISTRY_LOG_IN,
        *object_reads(environment, [ENGINES, PAYLOADS]),
        *bucket_listing(environment),
        *key_use(environment, ["kms:Decrypt"]),
        *volume_key_grant(environment),
        allow("ReadBenchmarkedModel", ["sagemaker:DescribeModel"], [given]),
        allow("RunBenchmarks", actions, made),
        *pass_role(arns.recommender(environment), "sagemaker.amazonaws.com"),
        allow("ReadBenchmarkMetrics", ["cloudwatch:GetMetricData"], ["*"]),
        *_job_logs(environment, RECOMMENDATION_LOG_GROUP),
        allow("WriteBenchmarkLogs", LOG_ACTIONS, [group, f"{group}:*"]),
        HOST_METRICS,
        *network_interfaces(environment),
    )


def machine_statements(
    environment: EnvironmentSpec,
    *,
    projects: Sequence[str],
    job_role: str | dict[str, Any],
    signers: Sequence[str],
) -> Statements:
    """The state machine's: these projects, training jobs, signers, its executions, one topic."""
    executions = arns.build_executions(environment, "execution")
    builders = [project_arn(environment, project) for project in projects]
    functions = [arns.arn(environment, "lambda", f"function:{signer}") for signer in signers]
    return (
        allow("RunBuilds", "codebuild:BatchGetBuilds StartBuild", builders),
        allow(
            "RunTrainingJobs",
            "sagemaker:AddTags CreateTrainingJob DescribeTrainingJob",
            [arns.training_jobs(environment)],
        ),
        *pass_role(job_role, "sagemaker.amazonaws.com"),
        allow("InvokeSigner", ["lambda:InvokeFunction"], functions),
        # A Map Run starts an execution of the same machine for every engine, and ends them when it
        # is ended.
        allow("StartEngines", "states:StartExecution", [arns.build_machine(environment)]),
        allow("FollowEngines", "states:DescribeExecution StopExecution", executions),
        *topic_publish(environment, arns.alarm_topic(environment)),
    )


def project_arn(environment: EnvironmentSpec, route: str) -> str:
    """Return the ARN of a CodeBuild project by its build route, or a pattern of them."""
    name = names.builder_project(environment, route)
    return arns.arn(environment, "codebuild", f"project/{name}")


def _job_logs(environment: EnvironmentSpec, log_group: str) -> Statements:
    """SageMaker's group for all jobs of a kind, in both forms of a group's ARN.

    IAM knows it by the longer one. Source: CloudWatch Logs user guide, "Overview of managing access
    permissions".
    """
    group = arns.log_group(environment, log_group)
    streams = f"{group}:log-stream:{names.training_job_prefix(environment)}*"
    return (
        allow("FindJobLog", "logs:CreateLogGroup DescribeLogStreams", [group, f"{group}:*"]),
        allow("WriteJobLog", ["logs:CreateLogStream", "logs:PutLogEvents"], [streams]),
    )


def signer_statements(environment: EnvironmentSpec, *, has_checkpoints: bool = False) -> Statements:
    """The signers': candidates, what is not published yet, one key, and their own logs."""
    published = [ENGINES]
    functions = [names.signer(environment)]
    if has_checkpoints:
        published.append(CHECKPOINTS)
        functions.append(names.checkpoint_signer(environment))
    prefixes = [*OF_CHECKPOINTS, *published]
    keys = [arns.arn(environment, "kms", "key/*")]
    algorithm = {"kms:SigningAlgorithm": SIGNING_ALGORITHM}
    alias = {
        "ForAnyValue:StringEquals": {"kms:ResourceAliases": arns.signing_key_alias(environment)}
    }
    return (
        *object_reads(environment, prefixes),
        *bucket_listing(environment),
        *write_once(environment, published),
        *key_use(environment, ["kms:Decrypt", "kms:GenerateDataKey"]),
        allow("Sign", "kms:Sign", keys, {"StringEquals": algorithm, **alias}),
        allow("ReadPublicKey", "kms:GetPublicKey", keys, alias),
        *log_stream_writes(environment, *(f"/aws/lambda/{function}" for function in functions)),
    )


def signing_key_statements(environment: EnvironmentSpec) -> list[dict[str, Any]]:
    """The key policy: the account administers the key, and the signer's role alone signs.

    IAM delegates what the account may do, so signing is the account's only as that role.
    """
    account = {"AWS": f"arn:{aws_partition(environment.region)}:iam::{environment.account}:root"}
    key = {"Effect": "Allow", "Principal": account, "Resource": "*"}
    return [
        {"Sid": "Administer", "Action": action_names(ADMINISTRATION), **key},
        {
            "Sid": "SignEngines",
            "Action": "kms:Sign",
            "Condition": {
                "ArnEquals": {"aws:PrincipalArn": arns.signer_role(environment)},
                "StringEquals": {"kms:SigningAlgorithm": SIGNING_ALGORITHM},
            },
            **key,
        },
    ]


ADMINISTRATION = (
    "kms:CancelKeyDeletion CreateAlias DeleteAlias DescribeKey DisableKey EnableKey GetKeyPolicy"
    " GetKeyRotationStatus GetPublicKey ListAliases ListGrants ListKeyPolicies ListResourceTags"
    " PutKeyPolicy ScheduleKeyDeletion TagResource UntagResource UpdateAlias UpdateKeyDescription"
    " Verify"
)
"""What IAM may allow of the key beside signing: no grant, which would carry signing to others."""
