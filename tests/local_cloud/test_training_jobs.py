"""SageMaker's training jobs.

What is refused, what is laid out in /opt/ml, what is kept, and how a job ends.
"""

import io
import tarfile
import zipfile

import pytest
from botocore.exceptions import ClientError

from tests.local_cloud.account import (
    ACCOUNT,
    BUCKET,
    MARK,
    ROLE,
    marked_processes,
    refusal,
    until,
    wait_until_gone,
)
from tests.local_cloud.build_machine import TRAINER_IMAGE, write_capacity, write_trainer

pytestmark = pytest.mark.local_cloud
REGISTRY = f"{ACCOUNT}.dkr.ecr.us-east-1.amazonaws.com/roundhouse-local"


@pytest.fixture(scope="module")
def jobs(cloud):
    write_trainer(cloud.state)
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("model.txt", "a source")
    cloud.client("s3").put_object(Bucket=BUCKET, Key="training/1.zip", Body=content.getvalue())
    return cloud


def request(name, model="good", **fields):
    """CreateTrainingJob's arguments for a job whose script does what its model's name says."""
    source = {
        "S3DataType": "S3Prefix",
        "S3Uri": f"s3://{BUCKET}/training/1.zip",
        "S3DataDistributionType": "FullyReplicated",
    }
    return {
        "TrainingJobName": name,
        "AlgorithmSpecification": {"TrainingImage": TRAINER_IMAGE, "TrainingInputMode": "File"},
        "RoleArn": ROLE,
        "HyperParameters": {"model": model, "commit": "c0ffee"},
        "InputDataConfig": [{"ChannelName": "source", "DataSource": {"S3DataSource": source}}],
        "OutputDataConfig": {"S3OutputPath": f"s3://{BUCKET}/jobs/results"},
        "ResourceConfig": {
            "InstanceType": "ml.c5.xlarge",
            "InstanceCount": 1,
            "VolumeSizeInGB": 30,
        },
        "StoppingCondition": {"MaxRuntimeInSeconds": 600},
        "Environment": {MARK: name},
        **fields,
    }


def create(cloud, *arguments, **fields):
    return cloud.client("sagemaker").create_training_job(**request(*arguments, **fields))[
        "TrainingJobArn"
    ]


def described(cloud, name):
    return cloud.client("sagemaker").describe_training_job(TrainingJobName=name)


def finished_job(cloud, name):
    def settled():
        found = described(cloud, name)
        return found if found["TrainingJobStatus"] in ("Completed", "Failed", "Stopped") else None

    return until(settled)


def test_a_job_runs_and_leaves_its_results_in_s3(jobs):
    assert create(jobs, "results").endswith(":training-job/results")
    found = finished_job(jobs, "results")
    assert (found["TrainingJobStatus"], found["SecondaryStatus"]) == ("Completed", "Completed")
    assert found["TrainingEndTime"] >= found["TrainingStartTime"]
    body = (
        jobs.client("s3")
        .get_object(Bucket=BUCKET, Key="jobs/results/results/output/output.tar.gz")["Body"]
        .read()
    )
    with tarfile.open(fileobj=io.BytesIO(body)) as archive:
        assert archive.getnames() == ["result.json"]
    listed = jobs.client("sagemaker").list_training_jobs(
        NameContains="esult", StatusEquals="Completed"
    )
    assert [summary["TrainingJobName"] for summary in listed["TrainingJobSummaries"]] == ["results"]
    assert wait_until_gone("results")


def test_a_failed_job_says_what_it_left_in_its_failure_file(jobs):
    create(jobs, "failing", "bad-model")
    found = finished_job(jobs, "failing")
    assert found["TrainingJobStatus"] == "Failed"
    assert found["FailureReason"] == 'AlgorithmError: "bad-model" has cosine 0.91, exit code: 3'


def test_a_stopped_job_ends_and_leaves_no_process(jobs):
    create(jobs, "stopped", "slow-model")
    until(
        lambda: (
            described(jobs, "stopped")["SecondaryStatus"] == "Training"
            and marked_processes("stopped")
        )
    )
    jobs.client("sagemaker").stop_training_job(TrainingJobName="stopped")
    assert finished_job(jobs, "stopped")["TrainingJobStatus"] == "Stopped"
    assert wait_until_gone("stopped")
    with pytest.raises(ClientError, match=r"ValidationException.*is in status Stopped"):
        jobs.client("sagemaker").stop_training_job(TrainingJobName="stopped")


def test_a_job_that_takes_too_long_is_ended(jobs):
    create(jobs, "long", "slow-model", StoppingCondition={"MaxRuntimeInSeconds": 1})
    found = finished_job(jobs, "long")
    actual = (found["TrainingJobStatus"], found["SecondaryStatus"])
    assert actual == ("Stopped", "MaxRuntimeExceeded")
    assert wait_until_gone("long")


def test_a_job_without_capacity_or_image_fails_with_the_reason(jobs):
    write_capacity(jobs.state, **{"ml.m5.xlarge": 0})
    create(
        jobs,
        "crowded",
        ResourceConfig={"InstanceType": "ml.m5.xlarge", "InstanceCount": 1, "VolumeSizeInGB": 1},
    )
    create(
        jobs,
        "imageless",
        AlgorithmSpecification={"TrainingImage": f"{REGISTRY}/none:1", "TrainingInputMode": "File"},
    )
    assert finished_job(jobs, "crowded")["FailureReason"].startswith(
        "CapacityError: Unable to provision requested ML compute capacity."
    )
    assert (
        "no local environment stands for the image"
        in finished_job(jobs, "imageless")["FailureReason"]
    )
    write_capacity(jobs.state)


@pytest.mark.parametrize(
    ("name", "fields", "code", "words"),
    [
        (
            "type",
            {"ResourceConfig": {"InstanceType": "ml.g5.tiny", "InstanceCount": 1}},
            "ValidationException",
            "ml.g5.tiny",
        ),
        (
            "key",
            {
                "ResourceConfig": {
                    "InstanceType": "ml.g6.xlarge",
                    "InstanceCount": 1,
                    "VolumeKmsKeyId": "k",
                }
            },
            "ValidationException",
            "VolumeKmsKeyId is not supported for instance type ml.g6.xlarge",
        ),
        (
            "none",
            {"ResourceConfig": {"InstanceCount": 1}},
            "ValidationException",
            "must name InstanceType",
        ),
        (
            "image",
            {
                "AlgorithmSpecification": {
                    "TrainingImage": "docker.io/x:1",
                    "TrainingInputMode": "File",
                }
            },
            "ValidationException",
            "non-ECR image",
        ),
        ("n" * 64, {}, "ValidationException", "length less than or equal to 63"),
        (
            "runtime",
            {"StoppingCondition": {"MaxRuntimeInSeconds": 0}},
            "ValidationException",
            "maxRuntimeInSeconds",
        ),
        ("role", {"RoleArn": None}, "ValidationException", "roleArn"),
    ],
)
def test_refuses_a_job(jobs, name, fields, code, words):
    with refusal(words, code):
        create(jobs, name, **fields)
    with pytest.raises(ClientError, match="Requested resource not found"):
        described(jobs, name[:63])


def test_refuses_a_name_twice_and_more_than_the_quota(jobs):
    create(jobs, "once")
    with pytest.raises(ClientError, match=r"ResourceInUse.*must be unique"):
        create(jobs, "once")
    write_capacity(jobs.state, **{"ml.c5.xlarge for training job usage": 0})
    with pytest.raises(ClientError, match=r"ResourceLimitExceeded.*is 0 Instances"):
        create(jobs, "beyond")
    write_capacity(jobs.state)
    finished_job(jobs, "once")
