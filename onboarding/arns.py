"""Amazon resource names of an environment, as literals.

Stacks agree on names, not on exports, so that each deploys alone.
"""

from __future__ import annotations

from collections.abc import Iterable

from onboarding import names
from onboarding.environment_spec import EnvironmentSpec
from onboarding.platform import aws_partition


def arn(environment: EnvironmentSpec, service: str, resource: str) -> str:
    """A resource in the environment's account and region."""
    partition, region = aws_partition(environment.region), environment.region
    return f"arn:{partition}:{service}:{region}:{environment.account}:{resource}"


def bucket(environment: EnvironmentSpec) -> str:
    """The artifact bucket."""
    return f"arn:{aws_partition(environment.region)}:s3:::{names.artifact_bucket(environment)}"


def bucket_object(environment: EnvironmentSpec, path: str) -> str:
    """One object, or a pattern of objects, of the artifact bucket."""
    return f"{bucket(environment)}/{path}"


def bucket_objects(environment: EnvironmentSpec, paths: Iterable[str]) -> list[str]:
    """Several objects, or patterns of objects, of the artifact bucket."""
    return [bucket_object(environment, path) for path in paths]


def role(environment: EnvironmentSpec, name: str) -> str:
    """A role of the environment's account."""
    return f"arn:{aws_partition(environment.region)}:iam::{environment.account}:role/{name}"


def pipeline_role(environment: EnvironmentSpec, purpose: names.Purpose) -> str:
    """A role of the access stack."""
    return role(environment, names.pipeline_role(environment, purpose))


def recommender(environment: EnvironmentSpec) -> str:
    """The role of Inference Recommender's jobs."""
    return role(environment, names.recommender(environment))


def build_machine(environment: EnvironmentSpec) -> str:
    """The state machine that builds engines."""
    return arn(environment, "states", f"stateMachine:{names.build_machine(environment)}")


def build_executions(environment: EnvironmentSpec, *kinds: str) -> list[str]:
    """Its executions, in both forms; `kinds` are `execution` and `mapRun`."""
    machine = names.build_machine(environment)
    return [
        arn(environment, "states", f"{kind}:{machine}{rest}")
        for kind in kinds
        for rest in (":*", "/*")
    ]


def training_jobs(environment: EnvironmentSpec) -> str:
    """The training jobs that build the environment's engines."""
    return arn(environment, "sagemaker", f"training-job/{names.training_job_prefix(environment)}*")


def repository(environment: EnvironmentSpec, image: str) -> str:
    """The ECR repository of an image."""
    return arn(environment, "ecr", f"repository/{names.repository(environment, image)}")


def key_alias(environment: EnvironmentSpec) -> str:
    """Alias of the key that the foundation stack makes."""
    return f"alias/roundhouse-{environment.name}"


def signing_key_alias(environment: EnvironmentSpec) -> str:
    """Alias of the key that engines are signed with."""
    return f"{key_alias(environment)}-signing"


def signer_role(environment: EnvironmentSpec) -> str:
    """The role that signs, by the name that the builds stack gives it."""
    return role(environment, names.signer(environment))


def key_id(environment: EnvironmentSpec) -> str:
    """The environment's own key by its ARN, or the foundation's by its alias."""
    return environment.kms_key_arn or key_alias(environment)


def alarm_topic_name(environment: EnvironmentSpec) -> str:
    """Name of the topic that alarms are sent to."""
    return f"roundhouse-{environment.name}-alarms"


def alarm_topic(environment: EnvironmentSpec) -> str:
    """The topic that alarms are sent to."""
    return arn(environment, "sns", alarm_topic_name(environment))


def answer_topic_name(environment: EnvironmentSpec) -> str:
    """Name of the topic that asynchronous endpoints announce their answers on."""
    return f"roundhouse-{environment.name}-answers"


def answer_topic(environment: EnvironmentSpec) -> str:
    """The topic that asynchronous endpoints announce their answers on."""
    return arn(environment, "sns", answer_topic_name(environment))


def log_group(environment: EnvironmentSpec, name: str) -> str:
    """One CloudWatch log group."""
    return arn(environment, "logs", f"log-group:{name}")
