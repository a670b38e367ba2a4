"""States that build an engine in a SageMaker training job on the serving instance type.

A training job, not a processing job: training knows every GPU type that hosting knows, processing
no A100, H200 or B200; it keeps unfinished work between tries, and says why it failed in the build's
own words. Processing would be a second way to fewer places.
"""

from __future__ import annotations

from typing import Any

from onboarding import arns, names
from onboarding.environment_spec import EnvironmentSpec
from roundhouse_cdk.builds.job import (
    CANDIDATE,
    ended_state,
    explained,
    first_wait,
    may_pass,
    next_wait,
    overrun,
    refusal,
    wait,
)
from roundhouse_cdk.builds.language import PATIENTLY, State, call, jsonata, literal, with_fields

JOB_ROLE = "${JobRole}"
"""Replaced by the role's ARN where the state machine is deployed."""
LOG_GROUP = "/aws/sagemaker/TrainingJobs"
"""SageMaker's own; a stream begins with its job's name."""
OF_CHECKPOINTS = ("environment", "model", "publish", "candidate", "commit", "image")
"""Hyperparameters of an engine's job that a checkpoint's has too."""
TRIED = f'$states.input.engine.engineKey & "-" & {CANDIDATE}'
"""One try at an engine. Its unfinished work is its own: a job takes over nothing of another, whose
source nobody may have reviewed."""
EXIT_CODE = r"/,? ?exit code: \d+$/i"
"""What SageMaker puts behind the failure file's words, or writes in their place."""


def training_states(
    environment: EnvironmentSpec, image_uri: str, quantizer_uri: str | None = None
) -> dict[str, State]:
    """From StartTrainingJob on, and StartQuantizerJob where there are text generators."""
    states = _training_states(environment, image_uri)
    if quantizer_uri is None:
        return states
    job = quantizer_job(environment, quantizer_uri)
    return {**states, "StartQuantizerJob": {**states["StartTrainingJob"], "Arguments": job}}


def _training_states(environment: EnvironmentSpec, image_uri: str) -> dict[str, State]:
    named = {"job": _name(environment), "log": f"{literal(LOG_GROUP + ' ')} & {_name(environment)}"}
    started = with_fields({**named, **first_wait(environment)})
    already = {
        "ErrorEquals": ["SageMaker.ResourceInUseException"],
        "Output": started,
        "Next": "WaitForTrainingJob",
    }
    return {
        "StartTrainingJob": call(
            environment,
            "sagemaker:createTrainingJob",
            training_job(environment, image_uri),
            Output=started,
            # The name is this try's own: whose job it is when it is there already is certain.
            Catch=[already, refusal(environment)],
            Next="WaitForTrainingJob",
        ),
        "WaitForTrainingJob": wait("LookAtTrainingJob"),
        "LookAtTrainingJob": call(
            environment,
            "sagemaker:describeTrainingJob",
            {"TrainingJobName": jsonata("$states.input.job")},
            Output=_progress(environment),
            Retry=PATIENTLY,
            Catch=[refusal(environment, lasts=True)],
            Next="TrainingJobEnded",
        ),
        "TrainingJobEnded": ended_state(
            going=["InProgress", "Stopping"], succeeded="Completed", wait_in="WaitForTrainingJob"
        ),
    }


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
    return {
        "TrainingJobName": jsonata(_name(environment)),
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
        **_vpc_config(environment),
    }


def _vpc_config(environment: EnvironmentSpec) -> State:
    network = environment.network
    if network is None:
        return {}
    subnets, groups = list(network.subnet_ids), list(network.security_group_ids)
    return {"VpcConfig": {"Subnets": subnets, "SecurityGroupIds": groups}}


def quantizer_job(environment: EnvironmentSpec, image_uri: str) -> dict[str, Any]:
    """Arguments of CreateTrainingJob for a checkpoint."""
    job = training_job(environment, image_uri)
    parameters = {name: job["HyperParameters"][name] for name in OF_CHECKPOINTS}
    key = {"checkpoint_key": jsonata("$states.input.engine.engineKey")}
    return {**job, "HyperParameters": {**parameters, **key}}


def _name(environment: EnvironmentSpec) -> str:
    """At most 16 + 20 + 8 + 2 characters beside 15 of ours: SageMaker takes 63."""
    return f"{literal(names.training_job_prefix(environment))} & {TRIED}"


def _progress(environment: EnvironmentSpec) -> str:
    """Status and reason; what the build itself said comes after `AlgorithmError:`.

    No other machine would change that. A program that left no words, as one that was killed, leaves
    its exit code alone.
    """
    ended_as = (
        '"the training job ended as " & $job.TrainingJobStatus & " (" & $job.SecondaryStatus & ")"'
    )
    first = rf"""
  $job := $states.result;
  $given := $boolean($job.FailureReason) ? $job.FailureReason : {ended_as};
  $own := $contains($given, /^AlgorithmError/)
    ? $trim($replace($replace($given, /^AlgorithmError:/, ""), {EXIT_CODE}, "")) : "";
  $wordless := $replace($given, /^AlgorithmError:[ ,]*/, "the program left no word but ");
  $said := $job.SecondaryStatus = "MaxRuntimeExceeded"
    ? {literal(overrun(environment))} : {explained(environment, "$wordless")};
"""
    fields = {
        "status": "$job.TrainingJobStatus",
        "reason": '$own != "" ? $own : $said',
        "retriable": f"$not($contains($given, /^AlgorithmError/)) and {may_pass('$given')}",
        **next_wait(environment),
    }
    return with_fields(fields, first=first)
