"""Inference Recommender jobs beyond the API model: subject, container, traffic, conditions."""

import pytest

from local_cloud.protocol.errors import AwsError
from local_cloud.sagemaker.recommender.job_checks import check_job

pytestmark = pytest.mark.unit
ROLE = "arn:aws:iam::000000000000:role/recommender"
CONTAINER = {
    "Domain": "NATURAL_LANGUAGE_PROCESSING",
    "Task": "OTHER",
    "Framework": "OTHER",
    "PayloadConfig": {
        "SamplePayloadUrl": "s3://b/payload.tar.gz",
        "SupportedContentTypes": ["application/json"],
    },
    "SupportedInstanceTypes": ["ml.c7i.large"],
}
PHASE = {"InitialNumberOfUsers": 2, "SpawnRate": 1, "DurationInSeconds": 120}
CONFIGURATION = {"InstanceType": "ml.c7i.large"}
ADVANCED = {
    "EndpointConfigurations": [CONFIGURATION],
    "TrafficPattern": {"TrafficType": "PHASES", "Phases": [PHASE]},
}


def phases(*changes):
    return {"TrafficType": "PHASES", "Phases": [PHASE | change for change in changes]}


def request(kind="Default", container=None, stopping=None, **config):
    config = {"ModelName": "m", "ContainerConfig": CONTAINER | (container or {}), **config}
    if kind == "Advanced":
        config, stopping = {**ADVANCED, **config}, {} if stopping is None else stopping
    conditions = {} if stopping is None else {"StoppingConditions": stopping}
    return {"JobName": "j", "JobType": kind, "RoleArn": ROLE, "InputConfig": config, **conditions}


@pytest.mark.parametrize("kind", ["Default", "Advanced"])
def test_complete_jobs_are_taken(kind):
    check_job(request(kind))


def test_phases_may_begin_three_users_from_the_end_of_the_one_before():
    check_job(request("Advanced", TrafficPattern=phases({}, {"InitialNumberOfUsers": 3})))


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (request(ModelName=None), "either the ModelPackageVersionArn or the ModelName"),
        (request(ModelName=None, ModelPackageVersionArn="arn"), "has no model registry"),
        (request(Endpoints=[{"EndpointName": "e"}]), "does not know what SageMaker does"),
        (request(container={"Domain": None}), "Domain is a mandatory parameter"),
        (request(container={"Framework": "TENSORRT"}), "Framework TENSORRT is not valid"),
        (request(container={"PayloadConfig": {}}), "SamplePayloadUrl is a mandatory parameter"),
        (
            request(container={"PayloadConfig": {"SamplePayloadUrl": "s3://b/payload.zip"}}),
            "must point to a single gzip compressed tar archive",
        ),
        (request(container={"SupportedInstanceTypes": []}), "it chooses them itself"),
        (request(container={"SupportedInstanceTypes": ["ml.t2.medium"]}), "Burstable instance"),
        (request(JobDurationInSeconds=18_001), "It should be 1 to 18000"),
        (request(TrafficPattern=phases({})), "a TrafficPattern of a Default job"),
        (request(stopping={"MaxInvocations": 9}), "StoppingConditions of a Default job"),
        (request("Advanced", EndpointConfigurations=[]), "requires them"),
        (request("Advanced", TrafficPattern=None), "Specify TrafficPattern"),
        (request("Advanced", TrafficPattern={"TrafficType": "STAIRS"}), "STAIRS with Stairs"),
        (
            request("Advanced", TrafficPattern=phases({"InitialNumberOfUsers": 4})),
            "InitialNumberOfUsers 4 is not valid. It should be 1 to 3",
        ),
        (request("Advanced", TrafficPattern=phases({"SpawnRate": 4})), "It should be 0 to 3"),
        (
            request("Advanced", TrafficPattern=phases({"DurationInSeconds": 119})),
            "It should be 120 to 3600",
        ),
        (
            request("Advanced", TrafficPattern=phases({"SpawnRate": 3}, {})),
            "Users at the end of prev phase is 8 while initial users of current phase is 2",
        ),
        (
            request("Advanced", JobDurationInSeconds=239, TrafficPattern=phases({}, {})),
            "should not be more than job duration",
        ),
        (request("Advanced", stopping={"MaxInvocations": 0}), "MaxInvocations 0 is not valid"),
        (
            request(
                "Advanced",
                stopping={
                    "ModelLatencyThresholds": [{"Percentile": "P99", "ValueInMilliseconds": 5}]
                },
            ),
            "For custom load tests, specify P95",
        ),
        (
            request(
                "Advanced",
                stopping={
                    "ModelLatencyThresholds": [{"Percentile": "P95", "ValueInMilliseconds": 0}]
                },
            ),
            "ValueInMilliseconds 0 is not valid",
        ),
        (
            request(
                "Advanced",
                ResourceLimit={"MaxNumberOfTests": 1},
                EndpointConfigurations=[
                    CONFIGURATION
                    | {
                        "EnvironmentParameterRanges": {
                            "CategoricalParameterRanges": [{"Name": "A", "Value": ["1", "2"]}]
                        }
                    }
                ],
            ),
            "2 combinations and a MaxNumberOfTests of 1",
        ),
    ],
)
def test_refuses_a_job(job, words):
    with pytest.raises(AwsError) as refused:
        check_job(job)
    assert words in refused.value.message
