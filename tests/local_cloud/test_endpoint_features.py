"""What an endpoint can do, walked from its YAML files to answers of the real Python server.

`roundhouse deploy`, then boto3.
"""

from __future__ import annotations

import datetime
import json

import pytest

from onboarding.names import artifact_bucket
from roundhouse.aws.clients import object_bytes
from tests.local_cloud.account import until
from tests.local_cloud.tiny_session import QUESTION, Caller, deploy_all, session_at, sound_network

pytestmark = pytest.mark.local_cloud

OWN = "{instance_type: ml.c7i.large, data_capture: {percent: 100}, scaling: {min: 1, max: 2}}"
QUEUE = (
    "{instance_type: ml.c7i.large, asynchronous: {max_concurrent_invocations: 2}, scaling: "
    "{min: 1, max: 1}}"
)
ENDPOINT, QUEUED = "local-tiny", "local-waits"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    with session_at(tmp_path_factory.mktemp("features"), seconds_per_minute="0.1") as tiny:
        tiny.write_model(sound_network(), endpoint=OWN)
        tiny.write_like("beside", "{joins: tiny, weight: 0}")
        tiny.write_like("waits", QUEUE, serving="{server: python}")
        done = deploy_all(tiny.start())
        assert len(done.built) == 3
        yield tiny


@pytest.fixture
def session(tiny):
    return tiny.start()


def invocations(session, variant):
    """How many requests a variant got, by its metric."""
    now = datetime.datetime.now(datetime.UTC)
    answer = session.clients("cloudwatch").get_metric_statistics(
        Namespace="AWS/SageMaker",
        MetricName="Invocations",
        Statistics=["Sum"],
        Period=60,
        StartTime=now - datetime.timedelta(hours=1),
        EndTime=now + datetime.timedelta(minutes=1),
        Dimensions=[
            {"Name": "EndpointName", "Value": ENDPOINT},
            {"Name": "VariantName", "Value": variant},
        ],
    )
    return sum(point["Sum"] for point in answer["Datapoints"])


def test_variant_without_weight_answers_whoever_names_it(session):
    caller = Caller(session)
    assert {caller.invoke(ENDPOINT)["greeting"] for _ in range(5)} == {"AllTraffic"}
    assert caller.invoke(ENDPOINT, TargetVariant="beside") == {"greeting": "beside", "rows": 1}


def test_queue_answers_by_way_of_s3(session):
    bucket = artifact_bucket(session.environment)
    session.clients("s3").put_object(
        Bucket=bucket, Key=f"requests/{QUEUED}/question", Body=QUESTION
    )
    accepted = session.clients("sagemaker-runtime").invoke_endpoint_async(
        EndpointName=QUEUED,
        InputLocation=f"s3://{bucket}/requests/{QUEUED}/question",
        ContentType="application/json",
    )
    key = accepted["OutputLocation"].removeprefix(f"s3://{bucket}/")
    assert key.startswith(f"answers/{QUEUED}/answered/")
    answer = json.loads(until(lambda: object_bytes(session.clients("s3"), bucket, key)))
    assert answer["outputs"][0]["shape"][0] == 1


def test_variant_becomes_a_shadow_that_gets_copies(tiny, session):
    tiny.write_like("beside", "{joins: tiny, role: shadow}")
    done = deploy_all(session)
    assert done.built == ()
    shown = session.clients("sagemaker").describe_endpoint(EndpointName=ENDPOINT)
    assert [variant["VariantName"] for variant in shown["ProductionVariants"]] == ["AllTraffic"]
    assert [item["VariantName"] for item in shown["ShadowProductionVariants"]] == ["beside"]
    before = invocations(session, "beside")
    assert {Caller(session).invoke(ENDPOINT)["greeting"] for _ in range(5)} == {"AllTraffic"}
    until(lambda: invocations(session, "beside") >= before + 5)
