"""A recommendation job against SageMaker's service model: what is sent, printed and refused."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import io
import json
import math
import tarfile
from types import SimpleNamespace

import boto3
import pytest
from botocore.stub import ANY, Stubber

from onboarding.lock import write_lock_entry
from onboarding.platform import instance_types
from onboarding.resolve import deployments
from onboarding.tree import read_tree
from roundhouse.cli.app import app
from roundhouse.errors import NotReadyError, RoundhouseError, UsageError
from roundhouse.measure.inputs import Body
from roundhouse.measure.recommendation import (
    COLUMNS,
    MOST_BODY_BYTES,
    job_request,
    rows_of,
    run_job,
    sample_payload,
)
from tests.unit.roundhouse.build_cloud import session_of
from tests.unit.roundhouse.engines import REPOSITORY, copied_tree, entry_for

MODEL = "sentence-embedder"
BENCHMARK = {
    "RecommendationId": "job/1",
    "Metrics": {
        "MaxInvocations": 3000,
        "ModelLatency": 20_000,
        "CostPerHour": 1.408,
        "CostPerInference": 7.8e-6,
        "CpuUtilization": 91.4,
        "MemoryUtilization": math.nan,
    },
    "EndpointConfiguration": {
        "EndpointName": "sm-epc-1",
        "VariantName": "main",
        "InstanceType": "ml.g5.xlarge",
        "InitialInstanceCount": 1,
    },
    "ModelConfiguration": {},
    "InvocationStartTime": datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
}
COMPLETED = {"Status": "COMPLETED", "InferenceRecommendations": [BENCHMARK]}


@pytest.fixture
def session(tmp_path):
    """The shipped files with every engine of `dev` in its lock, and stubs of AWS."""
    tree = copied_tree(tmp_path / "tree")
    for deployment in deployments(read_tree(tree), "dev"):
        for target in deployment.targets:
            write_lock_entry(tree / "models", target.model.name, entry_for(deployment, target))
    with contextlib.ExitStack() as stack:
        clients, stubs = {}, {}
        for service in ("sagemaker", "s3"):
            clients[service] = boto3.client(
                service, region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b"
            )
            stubs[service] = stack.enter_context(Stubber(clients[service]))
        yield session_of(tree, clients.__getitem__, "dev", code=REPOSITORY), stubs


def request(session, *wanted, model=MODEL):
    return job_request(session, model, wanted, None, 1)


def expect_start(stubs, order, refused=None):
    """AWS's answers to the start of a job; the stub holds each request to the service's model."""
    stubs["s3"].add_response("head_object", {}, {"Bucket": ANY, "Key": order.archive})
    stubs["s3"].add_response(
        "put_object", {}, {"Bucket": ANY, "Key": ANY, "Body": order.payload, "IfNoneMatch": "*"}
    )
    arn = "arn:aws:sagemaker:us-east-1:111122223333:"
    stubs["sagemaker"].add_response("create_model", {"ModelArn": f"{arn}model/m"}, order.model)
    operation = "create_inference_recommendations_job"
    if refused is not None:
        stubs["sagemaker"].add_client_error(operation, refused, "too many jobs")
        return
    reply = {"JobArn": f"{arn}inference-recommendations-job/j"}
    stubs["sagemaker"].add_response(operation, reply, order.job)


def expect_look(stubs, reply, steps=()):
    role = "arn:aws:iam::1:role/recommender"
    known = {
        "JobName": "j", "JobType": "Default", "JobArn": "arn:aws:j", "RoleArn": role,
        "CreationTime": 0, "LastModifiedTime": 0, "InputConfig": {},
    }  # fmt: skip
    stub = stubs["sagemaker"]
    stub.add_response("describe_inference_recommendations_job", {**known, **reply})
    rows = [{"StepType": "BENCHMARK", "JobName": "j", "Status": status} for status in steps]
    stub.add_response("list_inference_recommendations_job_steps", {"Steps": rows})


def expect_deleted(stubs, order):
    stubs["sagemaker"].add_response("delete_model", {}, {"ModelName": order.model["ModelName"]})


def test_a_job_is_started_followed_and_its_table_is_awss_own(session):
    session, stubs = session
    order, slept = request(session, "ml.g5.xlarge"), []
    expect_start(stubs, order)
    expect_look(stubs, {"Status": "IN_PROGRESS"}, ("COMPLETED", "IN_PROGRESS"))
    expect_look(stubs, COMPLETED)
    expect_deleted(stubs, order)
    (row,) = run_job(session, order, slept.append)
    assert row["Metrics"]["MaxInvocations"] == 3000 and row["Metrics"]["MemoryUtilization"] is None
    assert slept == [15.0]
    for stub in stubs.values():
        stub.assert_no_pending_responses()
    assert json.loads(json.dumps([row], allow_nan=False)) == [row]
    assert dict(zip(COLUMNS, *rows_of([row]), strict=True)) == {
        "instance type": "ml.g5.xlarge",
        "instances": "1",
        "invocations/min": "3,000",
        "model latency": "20,000 µs",
        "USD/hour": "1.408",
        "USD/inference": "7.8e-06",
        "CPU": "91 %",
        "memory": "–",
    }


def test_the_job_has_the_engine_the_types_and_requests_of_the_dataset(session):
    session, _ = session
    order = request(session)
    config = order.job["InputConfig"]
    container = config["ContainerConfig"]
    (own,) = (item for item in session.deployments() if item.name == MODEL)
    target = own.targets[0]
    assert target.engine_key in order.archive
    assert order.model["ExecutionRoleArn"].endswith(":role/roundhouse-dev-recommender")
    assert order.archive in order.model["PrimaryContainer"]["ModelDataUrl"]
    assert config["ModelName"] == order.model["ModelName"] == order.job["JobName"]
    assert len(order.job["JobName"]) <= 63
    assert len(container["SupportedInstanceTypes"]) > 2
    assert {instance_types()[name].gpu for name in container["SupportedInstanceTypes"]} == {"A10G"}
    assert container["Domain"] == "NATURAL_LANGUAGE_PROCESSING"
    with tarfile.open(fileobj=io.BytesIO(order.payload)) as archive:
        bodies = [archive.extractfile(member).read() for member in archive]
    assert 1 < len(bodies) <= 100 and all("inputs" in json.loads(body) for body in bodies)
    shared = request(session, model="sentence-embedder-int8").model["PrimaryContainer"]
    assert "ModelDataUrl" in shared and shared["Mode"] == "SingleModel"


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ("ml.g6.xlarge", "is no type in us-east-1 that runs engine .*, built for A10G"),
        ("ml.c7i.large", "is no type in us-east-1"),
        ("ml.g5.tiny", "did you mean|allowed"),
    ],
)
def test_refuses_types_that_run_another_engine(session, wanted, words):
    with pytest.raises(UsageError, match=words):
        request(session[0], "ml.g5.xlarge", wanted)


def test_refuses_what_no_job_can_measure(session):
    shipped, _ = session
    with pytest.raises(UsageError, match="no such model on an endpoint"):
        request(shipped, model="sentence-embeder")
    asynchronous = [
        dataclasses.replace(
            item, endpoint=item.endpoint.model_copy(update={"asynchronous": object()})
        )
        for item in shipped.deployments()
    ]
    queued = SimpleNamespace(environment=shipped.environment, deployments=lambda: asynchronous)
    with pytest.raises(UsageError, match="its endpoint is asynchronous"):
        request(queued)
    for lock in shipped.paths.tree.rglob("*.lock.yaml"):
        lock.unlink()
    with pytest.raises(RoundhouseError, match="is not in the lock; `roundhouse build --env dev"):
        request(shipped)
    with pytest.raises(RoundhouseError, match="ask for fewer rows a request"):
        sample_payload([Body(b"x" * (MOST_BODY_BYTES + 1), "application/json")])


def test_says_what_to_do_where_there_is_no_recommender(tmp_path):
    words = ["recommend", MODEL, "--env", "local", "--root", str(copied_tree(tmp_path))]
    with pytest.raises(UsageError, match="no Inference Recommender; name an environment"):
        app(words, standalone_mode=False)


def test_a_job_that_does_not_start_or_fails_ends_with_the_reason_and_leaves_no_model(session):
    session, stubs = session
    order = request(session)
    stubs["s3"].add_client_error("head_object", "404", "Not Found", 404)
    with pytest.raises(RoundhouseError, match="is not there, though the lock names it"):
        run_job(session, order)
    expect_start(stubs, order, refused="ResourceLimitExceeded")
    expect_deleted(stubs, order)
    with pytest.raises(RoundhouseError, match="too many jobs"):
        run_job(session, order)
    stubs["sagemaker"].assert_no_pending_responses()
    expect_start(stubs, order)
    expect_look(stubs, {"Status": "FAILED", "FailureReason": "no capacity."})
    expect_deleted(stubs, order)
    with pytest.raises(RoundhouseError, match=r"is FAILED: no capacity\. Log: /aws/sagemaker/Inf"):
        run_job(session, order)


def test_ctrl_c_stops_the_job_and_deletes_its_model(session):
    session, stubs = session
    order = request(session)
    expect_start(stubs, order)
    expect_look(stubs, {"Status": "PENDING"})
    stubs["sagemaker"].add_response(
        "stop_inference_recommendations_job", {}, {"JobName": order.job["JobName"]}
    )
    expect_deleted(stubs, order)

    def interrupt(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_job(session, order, interrupt)
    stubs["sagemaker"].assert_no_pending_responses()
    assert "SageMaker deletes its endpoints" in session.report.console.file.getvalue()


def test_says_how_to_stop_a_job_that_nobody_follows(session):
    session, stubs = session
    order = request(session)
    expect_start(stubs, order)
    stubs["sagemaker"].add_client_error(
        "describe_inference_recommendations_job", "AccessDeniedException", "no"
    )
    with pytest.raises(NotReadyError, match="stop-inference-recommendations-job --job-name round"):
        run_job(session, order)
