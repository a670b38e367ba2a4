"""Inference Recommender: real servers start, users load them, metrics come out of the load."""

import io
import json
import tarfile

import pytest
from botocore.exceptions import ClientError

from tests.local_cloud.account import BUCKET, IMAGE, MARK, ROLE, marked_processes, refusal, until

pytestmark = pytest.mark.local_cloud
TRUST = {
    "Effect": "Allow",
    "Principal": {"Service": "sagemaker.amazonaws.com"},
    "Action": "sts:AssumeRole",
}
ALLOWED = {
    "Effect": "Allow",
    "Action": ["sagemaker:*", "s3:GetObject", "iam:PassRole"],
    "Resource": "*",
}
RECOMMENDER = ROLE.replace("role/endpoint", "role/recommender")
PAYLOAD = f"s3://{BUCKET}/payload.tar.gz"
PHASES = [
    {"InitialNumberOfUsers": 2, "SpawnRate": 2, "DurationInSeconds": 120},
    {"InitialNumberOfUsers": 3, "SpawnRate": 1, "DurationInSeconds": 120},
]


@pytest.fixture(scope="module")
def sagemaker(cloud):
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        for number in range(2):
            member = tarfile.TarInfo(f"{number}.json")
            member.size = 2
            archive.addfile(member, io.BytesIO(b"hi"))
    cloud.client("s3").put_object(Bucket=BUCKET, Key="payload.tar.gz", Body=content.getvalue())
    iam = cloud.client("iam")
    for name, statement in (
        ("recommender", ALLOWED),
        ("narrow", ALLOWED | {"Action": "s3:GetObject"}),
    ):
        iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps({"Statement": [TRUST]}))
        iam.put_role_policy(
            RoleName=name, PolicyName="p", PolicyDocument=json.dumps({"Statement": [statement]})
        )
    client = cloud.client("sagemaker")
    for name, mode in (("steady", "healthy"), ("refusing", "refuses")):
        client.create_model(
            ModelName=name,
            ExecutionRoleArn=ROLE,
            PrimaryContainer={
                "Image": IMAGE,
                "ModelDataUrl": cloud.put_archive(f"recommended/{name}.tar.gz", "hi"),
                "Environment": {MARK: "recommended", "SERVER_MODE": mode},
            },
        )
    return client


def create(sagemaker, job, model, stopping=None, role=RECOMMENDER, **config):
    container = {
        "Domain": "NATURAL_LANGUAGE_PROCESSING",
        "Task": "OTHER",
        "Framework": "OTHER",
        "PayloadConfig": {
            "SamplePayloadUrl": PAYLOAD,
            "SupportedContentTypes": ["application/json"],
        },
    }
    if stopping is None:
        container["SupportedInstanceTypes"] = ["ml.g5.xlarge"]
    sagemaker.create_inference_recommendations_job(
        JobName=job,
        JobType="Default" if stopping is None else "Advanced",
        RoleArn=role,
        InputConfig={"ModelName": model, "ContainerConfig": container, **config},
        **({} if stopping is None else {"StoppingConditions": stopping}),
    )


def wait_until_settled(sagemaker, job):
    def settled():
        found = sagemaker.describe_inference_recommendations_job(JobName=job)
        return found if found["Status"] in ("COMPLETED", "FAILED", "STOPPED") else None

    return until(settled)


def test_a_load_test_serves_each_combination_and_its_result_scales(sagemaker):
    parameters = {"CategoricalParameterRanges": [{"Name": "MODELS_HELD", "Value": ["1", "2"]}]}
    create(
        sagemaker,
        "combinations",
        "steady",
        {"FlatInvocations": "Continue"},
        EndpointConfigurations=[
            {"InstanceType": "ml.g5.xlarge", "EnvironmentParameterRanges": parameters}
        ],
        TrafficPattern={"TrafficType": "PHASES", "Phases": PHASES},
        JobDurationInSeconds=600,
    )
    with refusal("Inference Recommender job with this name exists", "ResourceInUse"):
        create(sagemaker, "combinations", "steady")
    found = wait_until_settled(sagemaker, "combinations")
    rows = found["InferenceRecommendations"]
    assert {row["ModelConfiguration"]["EnvironmentParameters"][0]["Value"] for row in rows} == {
        "1",
        "2",
    }
    for row in rows:
        metrics = row["Metrics"]
        # One user at least was always under way: Little's law, in microseconds.
        in_flight = metrics["MaxInvocations"] / 60 * metrics["ModelLatency"] / 1e6
        assert 0.5 < in_flight <= 5.5
        paid = metrics["CostPerInference"] * metrics["MaxInvocations"] * 60
        assert paid == pytest.approx(metrics["CostPerHour"], rel=1e-3)
        assert row["EndpointConfiguration"]["EndpointName"].startswith("combinations-")
    steps = sagemaker.list_inference_recommendations_job_steps(JobName="combinations")["Steps"]
    assert [step["Status"] for step in steps] == ["COMPLETED", "COMPLETED"]
    scaling = sagemaker.get_scaling_configuration_recommendation(
        InferenceRecommendationsJobName="combinations",
        RecommendationId=rows[0]["RecommendationId"],
        ScalingPolicyObjective={
            "MaxInvocationsPerMinute": 10 * rows[0]["Metrics"]["MaxInvocations"]
        },
    )
    assert scaling["DynamicScalingConfiguration"]["MaxCapacity"] == 20
    listed = sagemaker.list_inference_recommendations_jobs(
        ModelNameEquals="steady", StatusEquals="COMPLETED", SortBy="Status"
    )
    assert [row["JobName"] for row in listed["InferenceRecommendationsJobs"]] == ["combinations"]
    assert not marked_processes("recommended")


def test_a_stopped_job_leaves_no_server_and_no_recommendation(sagemaker):
    create(sagemaker, "stopped", "steady")
    until(lambda: marked_processes("recommended"))
    sagemaker.stop_inference_recommendations_job(JobName="stopped")
    found = wait_until_settled(sagemaker, "stopped")
    assert found["Status"] == "STOPPED" and "InferenceRecommendations" not in found
    assert not marked_processes("recommended")
    with refusal("is in status STOPPED", "ValidationException"):
        sagemaker.stop_inference_recommendations_job(JobName="stopped")
    with refusal("it must be COMPLETED", "ValidationException"):
        sagemaker.get_scaling_configuration_recommendation(
            InferenceRecommendationsJobName="stopped", RecommendationId="x"
        )


def test_a_failed_job_says_what_the_model_answered(sagemaker):
    create(sagemaker, "failing", "refusing")
    found = wait_until_settled(sagemaker, "failing")
    assert found["Status"] == "FAILED"
    assert "answered no request" in found["FailureReason"]
    assert "that is no question" in found["FailureReason"]


def test_a_job_does_what_its_role_may(sagemaker):
    create(sagemaker, "narrow", "steady", role=RECOMMENDER.replace("recommender", "narrow"))
    found = wait_until_settled(sagemaker, "narrow")
    assert found["Status"] == "FAILED"
    assert "not authorized to perform: iam:PassRole" in found["FailureReason"]
    with refusal("cannot be assumed", "ValidationException"):
        create(sagemaker, "roleless", "steady", role=RECOMMENDER.replace("recommender", "nobody"))


def test_refuses_what_is_not_there(sagemaker):
    with pytest.raises(ClientError, match=r"ResourceNotFound.*not found"):
        sagemaker.describe_inference_recommendations_job(JobName="nobody")
    with refusal("Could not find model", "ValidationException"):
        create(sagemaker, "modelless", "nobody")
