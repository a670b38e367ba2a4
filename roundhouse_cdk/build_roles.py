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
    PULL,
    REGISTRY_LOG_IN,
    TRAINING_LOG_GROUP,
    Permissions,
    Statements,
    allow,
    pass_role,
)

ENGINES = f"{names.ENGINES_PREFIX}/*"
"""What builds look up; the signer alone writes there."""
PUBLISHED: tuple[str, ...] = (f"{names.NETWORKS_PREFIX}/*", f"{names.CANDIDATES_PREFIX}/*")
"""What every build publishes, and replaces never."""
SIGNING_ALGORITHM = {"kms:SigningAlgorithm": "ECDSA_SHA_256"}
CHECKPOINTS = f"{checkpoint_key.CHECKPOINTS}/*"
"""What builds of checkpoints look up; the signer alone writes there."""
OF_CHECKPOINTS = (f"{names.CANDIDATES_PREFIX}/*",)
"""What builds of checkpoints publish, and replace never."""
TIMING_CACHES = f"{names.TIMING_CACHES_PREFIX}/*"
SOURCES = f"{names.SOURCES_PREFIX}/*"
ONNX = f"{names.ONNX_PREFIX}/*"
JOBS = f"{names.JOBS_PREFIX}/*"
RECOMMENDATION_LOG_GROUP = "/aws/sagemaker/InferenceRecommendationsJobs"
"""Where SageMaker writes the log of every recommendation job, a stream a job."""
BENCHMARK_PREFIX = "sm-epc-"
"""Of what AWS names for the benchmarks of a recommendation job: models, configs, endpoints, logs.

Source: SageMaker developer guide, "Troubleshoot Inference Recommender errors".
"""


def project_statements(environment: EnvironmentSpec, route: BuildRoute) -> Statements:
    """A CodeBuild project's: its image, sources, what is built, and its own log."""
    may = Permissions(environment)
    published, read, written = PUBLISHED, [ENGINES, *PUBLISHED, TIMING_CACHES], [TIMING_CACHES]
    if route.name == QUANTIZER:
        published, read, written = OF_CHECKPOINTS, [CHECKPOINTS, *OF_CHECKPOINTS], []
    return (
        allow("PullImage", PULL, [arns.repository(environment, route.image)]),
        REGISTRY_LOG_IN,
        may.read([SOURCES, ONNX, *read]),
        may.list_bucket(),
        may.write_once(published),
        *([may.write(written)] if written else []),
        may.use_key(writes=True),
        *may.read_sources(),
        may.write_logs(log_group_name(environment, route.name)),
        *may.attach_network("codebuild.amazonaws.com"),
    )


def job_statements(environment: EnvironmentSpec, *images: str) -> Statements:
    """The training jobs': a project's, and unfinished work; one log group serves all jobs."""
    may = Permissions(environment)
    read = [SOURCES, ONNX, ENGINES, *PUBLISHED, TIMING_CACHES, JOBS]
    return (
        allow("PullImage", PULL, [arns.repository(environment, image) for image in images]),
        REGISTRY_LOG_IN,
        may.read([*read, CHECKPOINTS] if QUANTIZER_IMAGE in images else read),
        may.list_bucket(),
        may.write_once(PUBLISHED),
        may.write([TIMING_CACHES, JOBS]),
        may.use_key(writes=True),
        may.encrypt_output(),
        *may.read_sources(),
        *_job_logs(environment, TRAINING_LOG_GROUP),
        HOST_METRICS,
        *may.attach_network(),
    )


def recommender_statements(environment: EnvironmentSpec) -> Statements:
    """Inference Recommender's jobs': an endpoint for each benchmark, and its load.

    The same role runs a benchmark's instance, so it holds what an endpoint's does. AWS names a
    managed policy for such jobs and no exact set.
    """
    may = Permissions(environment)
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
    images = [arns.repository(environment, name) for name in get_args(ServingImage)]
    group = arns.log_group(environment, f"/aws/sagemaker/Endpoints/{BENCHMARK_PREFIX}*")
    logs = "logs:CreateLogGroup CreateLogStream DescribeLogStreams PutLogEvents"
    return (
        allow("PullImage", PULL, images),
        REGISTRY_LOG_IN,
        may.read([ENGINES, f"{names.JOBS_PREFIX}/payloads/*"]),
        may.list_bucket(),
        may.use_key(writes=False),
        *may.grant_volume_key(),
        allow("ReadBenchmarkedModel", "sagemaker:DescribeModel", [given]),
        allow("RunBenchmarks", actions, made),
        pass_role(arns.recommender(environment)),
        allow("ReadBenchmarkMetrics", "cloudwatch:GetMetricData", ["*"]),
        *_job_logs(environment, RECOMMENDATION_LOG_GROUP),
        allow("WriteBenchmarkLogs", logs, [group, f"{group}:*"]),
        HOST_METRICS,
        *may.attach_network(),
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
    training = "sagemaker:AddTags CreateTrainingJob DescribeTrainingJob"
    return (
        allow("RunBuilds", "codebuild:BatchGetBuilds StartBuild", builders),
        allow("RunTrainingJobs", training, [arns.training_jobs(environment)]),
        pass_role(job_role),
        allow("InvokeSigner", "lambda:InvokeFunction", functions),
        # A Map Run starts an execution of the same machine for every engine, and ends them when it
        # is ended.
        allow("StartEngines", "states:StartExecution", [arns.build_machine(environment)]),
        allow("FollowEngines", "states:DescribeExecution StopExecution", executions),
        *Permissions(environment).publish(arns.alarm_topic(environment)),
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
        allow("WriteJobLog", "logs:CreateLogStream PutLogEvents", [streams]),
    )


def signer_statements(environment: EnvironmentSpec, *, has_checkpoints: bool = False) -> Statements:
    """The signers': candidates, what is not published yet, one key, and their own logs."""
    may, published, functions = Permissions(environment), [ENGINES], [names.signer(environment)]
    if has_checkpoints:
        published.append(CHECKPOINTS)
        functions.append(names.checkpoint_signer(environment))
    keys = [arns.arn(environment, "kms", "key/*")]
    alias = {
        "ForAnyValue:StringEquals": {"kms:ResourceAliases": arns.signing_key_alias(environment)}
    }
    return (
        may.read([*OF_CHECKPOINTS, *published]),
        may.list_bucket(),
        may.write_once(published),
        may.use_key(writes=True),
        allow("Sign", "kms:Sign", keys, {"StringEquals": SIGNING_ALGORITHM, **alias}),
        allow("ReadPublicKey", "kms:GetPublicKey", keys, alias),
        may.write_logs(*(f"/aws/lambda/{function}" for function in functions)),
    )


def signing_key_statements(environment: EnvironmentSpec) -> list[dict[str, Any]]:
    """The key policy: the account administers the key, and the signer's role alone signs.

    IAM delegates what the account may do, so signing is the account's only as that role.
    """
    account = {"AWS": f"arn:{aws_partition(environment.region)}:iam::{environment.account}:root"}
    signer = {"ArnEquals": {"aws:PrincipalArn": arns.signer_role(environment)}}
    return [
        {"Principal": account, **statement}
        for statement in (
            allow("Administer", ADMINISTRATION, ["*"]),
            allow("SignEngines", "kms:Sign", ["*"], {**signer, "StringEquals": SIGNING_ALGORITHM}),
        )
    ]


ADMINISTRATION = (
    "kms:CancelKeyDeletion CreateAlias DeleteAlias DescribeKey DisableKey EnableKey GetKeyPolicy"
    " GetKeyRotationStatus GetPublicKey ListAliases ListGrants ListKeyPolicies ListResourceTags"
    " PutKeyPolicy ScheduleKeyDeletion TagResource UntagResource UpdateAlias UpdateKeyDescription"
    " Verify"
)
"""What IAM may allow of the key beside signing: no grant, which would carry signing to others."""
