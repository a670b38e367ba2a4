"""The build machine really executes.

Its own definition in Step Functions, builds and training jobs as processes.

No GPU is here: training jobs run on a CPU instance type, to which the input's `route` sends them
explicitly.
"""

import pytest

from tests.local_cloud.account import until
from tests.local_cloud.build_machine import Machine, engine, write_trainer

pytestmark = pytest.mark.local_cloud


@pytest.fixture(scope="module")
def machine(cloud):
    write_trainer(cloud.state)
    return Machine(cloud, "one")


def models(records):
    return sorted(record["model"] for record in records)


def words(machine, job):
    """The log of a training job."""
    logs, group = machine.cloud.client("logs"), "/aws/sagemaker/TrainingJobs"
    (stream,) = logs.describe_log_streams(
        logGroupName=group, logStreamNamePrefix=job["TrainingJobName"]
    )["logStreams"]
    events = logs.get_log_events(logGroupName=group, logStreamName=stream["logStreamName"])[
        "events"
    ]
    return [event["message"] for event in events]


def test_engines_are_built_by_both_routes_with_everything_they_need(machine):
    status, output = machine.run([engine("first"), engine("second", "training-job")])
    actual = (status, models(output["built"]), output["failed"])
    assert actual == ("SUCCEEDED", ["first", "second"], [])
    build, job = machine.builds()[0], machine.jobs()[0]
    variables = {
        variable["name"]: variable["value"]
        for variable in build["environment"]["environmentVariables"]
    }
    tag = variables.pop("ROUNDHOUSE_EXECUTION")
    assert variables == {
        "ROUNDHOUSE_BUCKET": machine.bucket,
        "ROUNDHOUSE_ENVIRONMENT": "one",
        "ROUNDHOUSE_MODEL": "first",
        "ROUNDHOUSE_COMPUTE_CAPABILITY": "cpu",
        "ROUNDHOUSE_SOURCE_COMMIT": "c0ffee",
        "ROUNDHOUSE_CANDIDATE": f"{tag}-0",
        "ROUNDHOUSE_PLAN_FROM": "none",
    }
    assert job["TrainingJobName"] == f"roundhouse-one--{engine('second')['engineKey']}-{tag}-0"
    assert [transition["Status"] for transition in job["SecondaryStatusTransitions"]] == [
        "Starting", "Downloading", "Training", "Uploading", "Completed",
    ]  # fmt: skip
    assert job["HyperParameters"] == {
        "environment": "one",
        "model": "second",
        "compute_capability": "cpu",
        "publish": f"s3://{machine.bucket}",
        "candidate": f"{tag}-0",
        "commit": "c0ffee",
        "image": job["AlgorithmSpecification"]["TrainingImage"],
    }
    assert "found a source of one" in words(machine, job)
    ((subject, message, _),) = machine.events()
    assert subject == "Roundhouse one: 2 engines built, 0 not"
    assert "first, engine" in message and "second, engine" in message


PLAN = {"planFrom": f"{'0a' * 10}:{'1b' * 32}", "planRoute": "cpu"}


def test_plan_is_packaged_where_that_is_cheapest_and_a_refused_one_is_compiled(machine):
    """By a build on a CPU; the engine's own route, here a training job, compiles."""
    route = "training-job"
    names = ("packaged", "refused-plan", "mute-machine", "bad-tree")
    execution = machine.start([engine(name, route, **PLAN) for name in names])
    assert machine.outcome(execution)["status"] == "FAILED"
    records = machine.records(execution)
    assert records["packaged"]["notReused"] == ""
    assert records["refused-plan"]["notReused"] == "the plan of engine 1 is not reused, it is gone"
    # A build that left no reason of its own may be the machine's fault.
    assert "exit status 3" in records["mute-machine"]["notReused"]
    # What the files bring about would stop the compilation too: no GPU is started for it.
    assert records["bad-tree"]["reason"] == '"bad-tree" has cosine 0.91'
    builds = {
        variable(build, "ROUNDHOUSE_MODEL"): variable(build, "ROUNDHOUSE_PLAN_FROM")
        for build in machine.builds()
        if variable(build, "ROUNDHOUSE_MODEL") in names
    }
    assert builds == dict.fromkeys(names, PLAN["planFrom"])
    jobs = {job["HyperParameters"]["model"]: job for job in machine.jobs()}
    assert set(jobs) & set(names) == {"refused-plan", "mute-machine"}
    # The second try's candidate is not the first's.
    assert jobs["refused-plan"]["HyperParameters"]["candidate"].endswith("-1")
    assert models(record for record in records.values() if record["status"] == "built") == [
        "mute-machine",
        "packaged",
        "refused-plan",
    ]
    assert sorted(subject for subject, *_ in machine.events()) == [
        "Roundhouse one: 3 engines built, 1 not",
        "Roundhouse one: bad-tree was not built",
    ]


def test_two_of_five_engines_fail_and_the_others_are_built(machine):
    route = "training-job"
    engines = [
        engine("a"),
        engine("bad-b"),
        engine("c", route),
        engine("bad-d", route),
        engine("e"),
    ]
    execution = machine.start(engines)
    ended = machine.outcome(execution)
    assert (ended["status"], ended["error"]) == ("FAILED", "Roundhouse.EnginesNotBuilt")
    records = machine.records(execution)
    assert models(record for record in records.values() if record["status"] == "built") == [
        "a",
        "c",
        "e",
    ]
    for model in ("bad-b", "bad-d"):
        assert records[model]["reason"] == f'"{model}" has cosine 0.91'
        assert f"{model}, engine {engine(model)['engineKey']}: " in ended["cause"]
    assert records["bad-b"]["log"].startswith("file://")
    assert records["bad-d"]["log"].startswith("/aws/sagemaker/TrainingJobs roundhouse-one--")
    messages = {subject: message for subject, message, _ in machine.events()}
    assert sorted(messages) == [
        "Roundhouse one: 3 engines built, 2 not",
        "Roundhouse one: bad-b was not built",
        "Roundhouse one: bad-d was not built",
    ]
    assert (
        'was not built: "bad-b" has cosine 0.91\nLog: file://'
        in messages["Roundhouse one: bad-b was not built"]
    )


def variable(build, name):
    return {
        variable["name"]: variable["value"]
        for variable in build["environment"]["environmentVariables"]
    }[name]


def test_an_unknown_route_and_a_source_that_is_gone_are_failures_with_a_reason(machine):
    execution = machine.start(
        [engine("lost"), engine("lost-too", "training-job"), engine("astray", "carrier-pigeon")],
        source=f"{machine.bucket}/sources/none.zip",
    )
    assert machine.outcome(execution)["status"] == "FAILED"
    reasons = {model: record["reason"] for model, record in machine.records(execution).items()}
    assert "NoSuchKey" in reasons["lost"]
    assert "No S3 objects found" in reasons["lost-too"]
    actual = reasons["astray"]
    assert actual == "environment one has no route carrier-pigeon; allowed: cpu, training-job"


def all_ended(states, children):
    return all(
        states.describe_execution(executionArn=child)["status"] != "RUNNING" for child in children
    )


def test_a_stopped_execution_starts_nothing_more(cloud, machine):
    narrow = Machine(cloud, "halted", at_once=1)
    execution = narrow.start([engine("slow-one"), engine("next")], [engine("last")])
    until(lambda: narrow.builds() and narrow.builds()[0]["currentPhase"] == "BUILD")
    narrow.stop(execution)
    assert narrow.outcome(execution)["status"] == "ABORTED"
    states = cloud.client("stepfunctions")
    children = until(lambda: found if len(found := narrow.children(execution)) == 2 else None)
    until(lambda: all_ended(states, children))
    assert narrow.outcome(execution)["status"] == "ABORTED"
    assert [variable(build, "ROUNDHOUSE_MODEL") for build in narrow.builds()] == ["slow-one"]
    assert narrow.events() == []
