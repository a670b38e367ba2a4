"""The training job that builds an engine on the serving instance type.

A training job, not a processing job: training knows every GPU type that hosting knows, processing
no A100, H200 or B200; it keeps unfinished work between tries, and says why it failed in the build's
own words. Processing would be a second way to fewer places.
"""

from __future__ import annotations

from typing import Any

from onboarding import arns, names
from onboarding.environment_spec import EnvironmentSpec
from roundhouse_cdk.builds.expressions import CANDIDATE, jsonata, literal

JOB_ROLE = "${JobRole}"
"""Replaced by the role's ARN where the state machine is deployed."""
LOG_GROUP = "/aws/sagemaker/TrainingJobs"
"""SageMaker's own; a stream begins with its job's name."""
OF_CHECKPOINTS = ("environment", "model", "publish", "candidate", "commit", "image")
"""Hyperparameters of an engine's job that a checkpoint's has too."""
TRIED = f'$states.input.engine.engineKey & "-" & {CANDIDATE}'
"""One try at an engine. Its unfinished work is its own: a job takes over nothing of another, whose
source nobody may have reviewed."""


def training_job(environment: EnvironmentSpec, image_uri: str) -> dict[str, Any]:
    """Arguments of CreateTrainingJob.

    The volume has no key: every GPU type has disks of its own, which are encrypted by hardware and
    refuse one. The container has a network: it fetches its sources and publishes to S3 itself.
    """
    builds, bucket = environment.builds, f"s3://{names.artifact_bucket(environment)}"
    request = {
        "environment": environment.name,
        "model": jsonata("$states.input.engine.model"),
        "compute_capability": jsonata("$states.input.engine.computeCapability"),
        "publish": bucket,
        "candidate": jsonata(CANDIDATE),
        "commit": jsonata("$states.input.commit"),
        "image": image_uri,
    }
    source = {
        "S3DataType": "S3Prefix",
        "S3Uri": jsonata('"s3://" & $states.input.source'),
        "S3DataDistributionType": "FullyReplicated",
    }
    checkpoints = literal(f"{bucket}/{names.unfinished_work_prefix('')}")
    network = environment.network
    vpc = network and {
        "Subnets": list(network.subnet_ids),
        "SecurityGroupIds": list(network.security_group_ids),
    }
    return {
        "TrainingJobName": jsonata(job_name(environment)),
        "AlgorithmSpecification": {"TrainingImage": image_uri, "TrainingInputMode": "File"},
        "RoleArn": JOB_ROLE,
        "HyperParameters": request,
        "InputDataConfig": [
            {"ChannelName": "source", "DataSource": {"S3DataSource": source}, "InputMode": "File"}
        ],
        "OutputDataConfig": {
            "S3OutputPath": f"{bucket}/{names.JOBS_PREFIX}/results",
            # Without one SageMaker takes the account's own for S3, whatever the bucket says.
            "KmsKeyId": arns.key_id(environment),
        },
        "CheckpointConfig": {"S3Uri": jsonata(f"{checkpoints} & {TRIED}")},
        "ResourceConfig": {
            "InstanceType": jsonata("$states.input.engine.instanceType"),
            "InstanceCount": 1,
            "VolumeSizeInGB": builds.volume_gib,
        },
        "StoppingCondition": {"MaxRuntimeInSeconds": 60 * builds.timeout_minutes},
        "EnableNetworkIsolation": False,
        "Tags": [{"Key": "roundhouse-environment", "Value": environment.name}],
        **({"VpcConfig": vpc} if vpc else {}),
    }


def quantizer_job(environment: EnvironmentSpec, image_uri: str) -> dict[str, Any]:
    """Arguments of CreateTrainingJob for a checkpoint."""
    job = training_job(environment, image_uri)
    parameters = {name: job["HyperParameters"][name] for name in OF_CHECKPOINTS}
    key = {"checkpoint_key": jsonata("$states.input.engine.engineKey")}
    return {**job, "HyperParameters": {**parameters, **key}}


def job_name(environment: EnvironmentSpec) -> str:
    """At most 16 + 20 + 8 + 2 characters beside 15 of ours: SageMaker takes 63."""
    return f"{literal(names.training_job_prefix(environment))} & {TRIED}"
