"""What an endpoint can do, walked from its YAML files to answers of the real Python server.

`roundhouse deploy`, then boto3.
"""

from __future__ import annotations

import datetime
import json

import pytest

from onboarding.names import artifact_bucket
from roundhouse import invocation
from roundhouse.aws.clients import object_bytes
from roundhouse.invocation import NoCapacityError
from roundhouse.status import state_of
from tests.local_cloud.account import until
from tests.local_cloud.tiny_session import QUESTION, Caller, deploy_all, session_at, sound_network

pytestmark = pytest.mark.local_cloud

OWN = "{instance_type: ml.c7i.large, data_capture: {percent: 100}, scaling: {min: 1, max: 2}}"
QUEUE = (
    "{instance_type: ml.c7i.large, asynchronous: {max_concurrent_invocations: 2}, scaling: "
    "{min: 1, max: 1}}"
)
ZERO = "{instance_type: ml.c7i.large, scaling: {min: 0, max: 1, scale_in_cooldown_seconds: 0}}"
ENDPOINT, QUEUED, RESTING = "local-tiny", "local-waits", "local-rests"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    with session_at(tmp_path_factory.mktemp("features"), seconds_per_minute="0.1") as tiny:
        tiny.write_model(sound_network(), endpoint=OWN)
        tiny.write_like("beside", "{joins: tiny, weight: 0}")
        tiny.write_like("waits", QUEUE, serving="{server: python}")
        tiny.write_like("rests", ZERO, serving="{server: python}")
        done = deploy_all(tiny.start())
        assert len(done.built) == 4
        yield tiny


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
    caller = Caller(session.clients)
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


def test_model_scales_to_zero_and_the_first_request_brings_its_copy(tiny, session):
    sagemaker, runtime = (session.clients(name) for name in ("sagemaker", "sagemaker-runtime"))
    (address, target) = invocation.address(session.deployments(), "rests", None)

    def ask():
        return invocation.invoke_texts(runtime, address, ["a red train"])

    def counts():
        (variant,) = sagemaker.describe_endpoint(EndpointName=RESTING)["ProductionVariants"]
        component = sagemaker.describe_inference_component(InferenceComponentName=RESTING)
        copies = component["RuntimeConfig"]["CurrentCopyCount"]
        return variant["CurrentInstanceCount"], copies, component["InferenceComponentStatus"]

    until(lambda: counts() == (0, 0, "InService"))
    with pytest.raises(NoCapacityError, match=f"{RESTING}: has no copy that answers.*--wait"):
        ask()
    waited = []
    (vector,) = invocation.ask_until(ask, "rests", 120, waited.append, pause=lambda seconds: None)
    assert sum(number * number for number in vector) == pytest.approx(1, abs=1e-5)
    assert waited and counts()[:2] == (1, 1)
    live = state_of(tiny.paths, session.report, "local").live
    (component,) = next(item for item in live if item.name == "rests").components
    assert component.serves == target.engine_key
    until(lambda: counts() == (0, 0, "InService"))


def test_variant_becomes_a_shadow_that_gets_copies(tiny, session):
    tiny.write_like("beside", "{joins: tiny, role: shadow}")
    done = deploy_all(session)
    assert done.built == ()
    shown = session.clients("sagemaker").describe_endpoint(EndpointName=ENDPOINT)
    assert [variant["VariantName"] for variant in shown["ProductionVariants"]] == ["AllTraffic"]
    assert [item["VariantName"] for item in shown["ShadowProductionVariants"]] == ["beside"]
    before, caller = invocations(session, "beside"), Caller(session.clients)
    assert {caller.invoke(ENDPOINT)["greeting"] for _ in range(5)} == {"AllTraffic"}
    until(lambda: invocations(session, "beside") >= before + 5)
