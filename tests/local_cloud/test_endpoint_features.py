"""What an endpoint can do, walked from its YAML files to answers of the real Python server.

`roundhouse deploy`, then boto3.
"""

from __future__ import annotations

import datetime
import io
import json

import pytest
from botocore.exceptions import ClientError
from rich.console import Console

from container.wire import text_request
from onboarding.names import artifact_bucket
from roundhouse.aws.clients import object_bytes
from roundhouse.cli.check_captures import compare
from roundhouse.report import Report
from roundhouse.status.state import state_of
from roundhouse.status.table import endpoints_table
from tests.local_cloud.account import until
from tests.local_cloud.tiny_session import QUESTION, Caller, deploy_all, session_at, sound_network

pytestmark = pytest.mark.local_cloud

# A morning in four years: a floor that begins while a test runs is another endpoint.
OWN = (
    "{instance_type: ml.c7i.large, data_capture: {percent: 100,"
    ' check: {schedule: "rate(1 day)"}},'
    ' scaling: {min: 1, max: 2, schedule: [{schedule: "cron(0 6 29 2 ? *)", min: 2, timezone: '
    "Europe/Berlin}]}}"
)
QUEUE = (
    "{instance_type: ml.c7i.large, asynchronous: {max_concurrent_invocations: 2}, scaling: "
    "{min: 1, max: 1}}"
)
ENDPOINT, QUEUED = "local-tiny", "local-waits"
EXECUTION_ROLE = "arn:aws:iam::000000000000:role/nobody"


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


def objects(session, prefix):
    """Everything under a prefix of the artifact bucket, once there is something."""
    bucket, s3 = artifact_bucket(session.environment), session.clients("s3")

    def stored_objects():
        names = [
            entry["Key"]
            for entry in s3.list_objects_v2(Bucket=bucket, Prefix=prefix).get("Contents", [])
        ]
        return {
            name: s3.get_object(Bucket=bucket, Key=name)["Body"].read() for name in names
        } or None

    return until(stored_objects)


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


def test_status_shows_variants_floors_and_the_queue(tiny, session):
    state = state_of(tiny.paths, Report(console=Console(file=io.StringIO())), "local")
    shown = {endpoint["name"]: endpoint for endpoint in state.as_dict()["endpoints"]}
    own, beside = shown["tiny"]["variants"]
    actual = (own["name"], own["fewest"], own["most"], beside["name"])
    assert actual == ("AllTraffic", 1, 2, "beside")
    assert own["schedule"] == ("cron(0 6 29 2 ? *) Europe/Berlin: from 2",)
    assert {engine.endpoint_status for engine in state.engines} == {"InService"}
    text = io.StringIO()
    Console(file=text, width=300).print(endpoints_table(state.endpoints))
    assert all(words in text.getvalue() for words in ("beside", "waits", "Europe/Berlin: from 2"))


def test_floor_is_registered_as_the_file_says(session):
    scaling = session.clients("application-autoscaling")
    found = scaling.describe_scheduled_actions(ServiceNamespace="sagemaker")["ScheduledActions"]
    actions = {item["ResourceId"]: item for item in found}
    # The model that joins takes the endpoint's scaling, since it says none of its own.
    assert actions.keys() == {
        f"endpoint/{ENDPOINT}/variant/{variant}" for variant in ("AllTraffic", "beside")
    }
    action = actions[f"endpoint/{ENDPOINT}/variant/AllTraffic"]
    assert (action["Schedule"], action["Timezone"]) == ("cron(0 6 29 2 ? *)", "Europe/Berlin")
    assert action["ScalableTargetAction"] == {"MinCapacity": 2, "MaxCapacity": 2}


def test_requests_and_answers_are_captured_where_the_stack_says(session):
    Caller(session).invoke(ENDPOINT)
    captured = objects(session, f"captures/{ENDPOINT}/AllTraffic/")
    line = json.loads(next(iter(captured.values())).splitlines()[0])["captureData"]
    assert json.loads(line["endpointInput"]["data"]) == json.loads(QUESTION)
    assert json.loads(line["endpointOutput"]["data"])["outputs"][0]["shape"][0] == 1


def validation_texts(session):
    """Lines of the validation data, which no build calibrated on."""
    path = session.paths.tree / "models" / "data" / "sentences.txt"
    return path.read_text(encoding="utf-8").splitlines()[:120]


def test_captures_are_compared_with_the_source_model_and_published(session):
    runtime, texts = session.clients("sagemaker-runtime"), validation_texts(session)
    before = datetime.datetime.now(datetime.UTC)
    for begin in range(0, len(texts), 4):
        body, content_type = text_request(texts[begin : begin + 4], binary=begin % 8 == 0)
        runtime.invoke_endpoint(
            EndpointName=ENDPOINT,
            TargetVariant="AllTraffic",
            ContentType=content_type,
            Body=body,
        )

    def compared():
        own, _ = compare(session, "tiny", ["--publish", "--sample", "150"])
        return own if own["rows"] >= len(texts) else None

    report = until(compared, 60)
    assert report["accuracy"]["verdict"] == "pass"
    assert report["accuracy"]["record"]["mean"] == pytest.approx(1, abs=1e-4)
    assert report["unread"] == {}
    assert report["inputs"]["enough_data"] is True
    assert objects(session, f"capture-reports/{ENDPOINT}/AllTraffic/")
    values = session.clients("cloudwatch").get_metric_statistics(
        Namespace="Roundhouse/Captures",
        MetricName="AccuracyUpperBound",
        Dimensions=[
            {"Name": "EndpointName", "Value": ENDPOINT},
            {"Name": "VariantName", "Value": "AllTraffic"},
        ],
        StartTime=before - datetime.timedelta(minutes=1),
        EndTime=datetime.datetime.now(datetime.UTC) + datetime.timedelta(minutes=1),
        Period=60,
        Statistics=["Minimum"],
    )["Datapoints"]
    assert values and min(item["Minimum"] for item in values) > 0.99


def schedule_once(session, name, target, seconds=2):
    """Make a schedule that runs once, soon, and is gone then; return it until it is."""
    scheduler = session.clients("scheduler")
    moment = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds)
    scheduler.create_schedule(
        Name=name,
        ScheduleExpression=f"at({moment:%Y-%m-%dT%H:%M:%S})",
        FlexibleTimeWindow={"Mode": "OFF"},
        ActionAfterCompletion="DELETE",
        Target=target,
    )
    return lambda: name in {item["Name"] for item in scheduler.list_schedules()["Schedules"]}


def test_schedule_starts_the_comparison_which_publishes(session):
    scheduler = session.clients("scheduler")
    (own,) = (item["Name"] for item in scheduler.list_schedules()["Schedules"])
    shown = scheduler.get_schedule(Name=own)
    assert (shown["ScheduleExpression"], shown["State"]) == ("rate(1 day)", "ENABLED")
    before = set(objects(session, f"capture-reports/{ENDPOINT}/AllTraffic/"))
    is_there = schedule_once(session, "soon", shown["Target"])
    assert is_there()

    def report():
        after = objects(session, f"capture-reports/{ENDPOINT}/AllTraffic/")
        made = [json.loads(after[key]) for key in after if key not in before and "json" in key]
        return next((item for item in made if item["accuracy"]["verdict"] == "pass"), None)

    assert until(report, 120)["metrics"]["AccuracyUpperBound"] > 0.99
    assert not is_there()


def test_refuses_schedules_as_aws_does(session):
    scheduler = session.clients("scheduler")
    (own,) = (item["Name"] for item in scheduler.list_schedules()["Schedules"])
    shown = scheduler.get_schedule(Name=own)
    target = shown["Target"]
    for change, sentence in (
        ({"ScheduleExpression": "rate(1 hours)"}, "Invalid Schedule Expression rate"),
        ({"ScheduleExpression": "cron(0 4 * * * *)"}, "Invalid Schedule Expression cron"),
        ({"Target": {**target, "RoleArn": EXECUTION_ROLE}}, "must allow AWS EventBridge Scheduler"),
        ({"FlexibleTimeWindow": {"Mode": "SOMETIMES"}}, "flexibleTimeWindow.mode"),
    ):
        given = {
            "Name": "refused",
            "ScheduleExpression": "rate(1 hour)",
            "FlexibleTimeWindow": {"Mode": "OFF"},
            "Target": target,
        }
        with pytest.raises(ClientError, match=sentence):
            scheduler.create_schedule(**{**given, **change})


def test_schedule_whose_role_may_not_calls_nothing(session, tiny):
    """The role of the comparison's schedule starts one project; it deletes no endpoint."""
    scheduler = session.clients("scheduler")
    (own,) = (item["Name"] for item in scheduler.list_schedules()["Schedules"])
    role = scheduler.get_schedule(Name=own)["Target"]["RoleArn"]
    is_there = schedule_once(
        session,
        "denied",
        {
            "Arn": "arn:aws:scheduler:::aws-sdk:sagemaker:deleteEndpoint",
            "RoleArn": role,
            "Input": json.dumps({"EndpointName": QUEUED}),
            "RetryPolicy": {"MaximumRetryAttempts": 0},
        },
        seconds=1,
    )
    until(lambda: not is_there())
    shown = session.clients("sagemaker").describe_endpoint(EndpointName=QUEUED)
    assert shown["EndpointStatus"] == "InService"


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
