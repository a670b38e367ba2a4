"""The build machine really executes.

Its own definition in Step Functions, builds and training jobs as processes.

No GPU is here: training jobs run on a CPU instance type, to which the input's `route` sends them
explicitly.
"""

import hashlib
import io
import json
import textwrap
import zipfile

import pytest
import yaml
from aws_cdk import aws_codebuild as codebuild

from onboarding import arns, names
from onboarding.environment_spec import EnvironmentSpec
from roundhouse.deploy.builds.execution import Execution
from roundhouse_cdk.engine_pipeline import BuildPrograms
from tests.local_cloud.account import ACCOUNT, BUILD_IMAGE, CREATED, ROLE, until
from tests.synth.pipeline import TAG, pipeline_resources

pytestmark = pytest.mark.local_cloud

TRAINER_IMAGE = f"{ACCOUNT}.dkr.ecr.us-east-1.amazonaws.com/roundhouse-local/test-trainer:1"
BUILDSPEC = """
version: 0.2
env: {exported-variables: [ROUNDHOUSE_REASON]}
phases:
  build:
    commands:
      - echo "building $ROUNDHOUSE_MODEL for $ROUNDHOUSE_COMPUTE_CAPABILITY of $ROUNDHOUSE_ENVIRONMENT"
      - cat model.txt
      - case "$ROUNDHOUSE_MODEL$ROUNDHOUSE_PLAN_FROM" in slow*) sleep 600;; bad*|refused*:*|mute*:*) exit 3;; *) sleep 0.3;; esac
  post_build:
    commands:
      - case "$ROUNDHOUSE_MODEL" in bad*) export ROUNDHOUSE_REASON="\\"$ROUNDHOUSE_MODEL\\" has cosine 0.91";; esac
      - case "$ROUNDHOUSE_MODEL$ROUNDHOUSE_PLAN_FROM" in refused*:*) export ROUNDHOUSE_REASON="the plan of engine 1 is not reused, it is gone";; esac
"""
TRAINER = """
import json, pathlib, signal, sys, time, zipfile
ml = pathlib.Path(sys.argv[sys.argv.index("--ml") + 1])
wishes = json.loads((ml / "input/config/hyperparameters.json").read_text())
print("training", json.dumps(wishes, sort_keys=True), flush=True)
(source,) = (ml / "input/data/source").iterdir()
print("found", zipfile.ZipFile(source).read("model.txt").decode(), flush=True)
(ml / "output/data/result.json").write_text("{}")
if wishes["model"].startswith("slow"):
    time.sleep(600)
if wishes["model"].startswith("bad"):
    (ml / "output/failure").write_text('"' + wishes["model"] + '" has cosine 0.91')
    sys.exit(3)
"""
SIGNER = """
def handler(event, context):
    if event["model"].startswith("unsigned"):
        return {"status": "refused", "reason": f"the manifest of {event['model']} is another's"}
    if event["model"].startswith("unsignable"):
        raise RuntimeError("no key to sign with")
    assert sorted(event) == ["candidate", "commit", "engineKey", "execution", "model", "source"]
    return {"status": "signed"}
"""
"""It signs nothing: these builds leave no candidate."""
RECEIVED = "events"


class Machine:
    """One environment's machine, deployed, with a queue that receives what it tells its topic."""

    def __init__(self, cloud, name, **builds):
        self.cloud = cloud
        self.environment = EnvironmentSpec(
            name=name,
            account=ACCOUNT,
            region="us-east-1",
            platform="triton-24.10-cpu",
            builds={
                "poll_seconds": 1,
                "at_once": 4,
                "capacity_retries": 1,
                "timeout_minutes": 5,
                **builds,
            },
        )
        buildspec = codebuild.BuildSpec.from_object_to_yaml(yaml.safe_load(BUILDSPEC))
        programs = BuildPrograms(buildspec=buildspec, signer=SIGNER)
        resources = pipeline_resources(self.environment, programs)
        builder = names.image_uri(self.environment, "builder-cpu", TAG)
        machine = resources["Machine"]["Properties"]
        text = json.dumps(machine["DefinitionString"]).replace(builder, TRAINER_IMAGE)
        machine |= {
            "RoleArn": ROLE,
            "DefinitionString": json.loads(text),
            "DefinitionSubstitutions": {"JobRole": f"arn:aws:iam::{ACCOUNT}:role/job"},
        }
        resources["CpuProject"]["Properties"] |= {"ServiceRole": ROLE}
        resources["CpuProject"]["Properties"]["Environment"] |= {"Image": BUILD_IMAGE}
        resources["Signer"]["Properties"] |= {"Role": ROLE}
        deployed = {
            "Bucket": ("AWS::S3::Bucket", {"BucketName": self.bucket}),
            "Topic": ("AWS::SNS::Topic", {"TopicName": arns.alarm_topic_name(self.environment)}),
            **{
                name: (resources[name]["Type"], resources[name]["Properties"])
                for name in ("CpuLogs", "CpuProject", "SignerLogs", "Signer", "Machine")
            },
        }
        status = cloud.deploy(
            f"machine-{name}",
            {key: {"Type": t, "Properties": p} for key, (t, p) in deployed.items()},
        )
        assert status == CREATED, status
        self._subscribe()

    @property
    def bucket(self):
        return names.artifact_bucket(self.environment)

    @property
    def arn(self):
        return arns.arn(
            self.environment, "states", f"stateMachine:{names.build_machine(self.environment)}"
        )

    def start(self, *waves, **fields):
        """Starts an execution and returns its ARN."""
        source = io.BytesIO()
        with zipfile.ZipFile(source, "w") as archive:
            archive.writestr("model.txt", f"a source of {self.environment.name}\n")
            archive.writestr("engine_build/buildspec.yml", BUILDSPEC)
        self.cloud.client("s3").put_object(
            Bucket=self.bucket, Key="sources/1.zip", Body=source.getvalue()
        )
        given = {
            "source": f"{self.bucket}/sources/1.zip",
            "commit": "c0ffee",
            "waves": waves,
            **fields,
        }
        return self.cloud.client("stepfunctions").start_execution(
            stateMachineArn=self.arn, input=json.dumps(given)
        )["executionArn"]

    def outcome(self, execution):
        """How an execution ended."""
        client = self.cloud.client("stepfunctions")

        def settled():
            found = client.describe_execution(executionArn=execution)
            return None if found["status"] == "RUNNING" else found

        return until(settled)

    def run(self, *waves):
        """Runs an execution to its end: its status, and its output or, when it failed, its cause."""
        found = self.outcome(self.start(*waves))
        return found["status"], json.loads(found["output"]) if found[
            "status"
        ] == "SUCCEEDED" else found["cause"]

    def children(self, execution):
        """The executions of its engines, in no order."""
        client = self.cloud.client("stepfunctions")
        runs = client.list_map_runs(executionArn=execution)["mapRuns"]
        found = [
            item
            for run in runs
            for item in client.list_executions(mapRunArn=run["mapRunArn"])["executions"]
        ]
        return [entry["executionArn"] for entry in found]

    def stop(self, execution):
        """Stops an execution, its builds and its jobs, as `roundhouse` does on Ctrl-C."""
        clients = self.cloud.client
        Execution(arn=execution, environment=self.environment, clients=clients).stop(lambda: None)

    def records(self, execution):
        """What the execution of each engine came to, by model."""
        client = self.cloud.client("stepfunctions")
        outputs = [
            client.describe_execution(executionArn=child).get("output")
            for child in self.children(execution)
        ]
        return {
            record["model"]: record
            for record in (json.loads(item) for item in outputs if item is not None)
        }

    def builds(self):
        """Every build of the project, the newest first."""
        client = self.cloud.client("codebuild")
        ids = client.list_builds_for_project(
            projectName=names.builder_project(self.environment, "cpu")
        )["ids"]
        return client.batch_get_builds(ids=ids)["builds"] if ids else []

    def jobs(self):
        """Every training job of the environment, the newest first."""
        client = self.cloud.client("sagemaker")
        found = client.list_training_jobs(
            NameContains=names.training_job_prefix(self.environment),
            SortOrder="Descending",
            MaxResults=100,
        )["TrainingJobSummaries"]
        return [
            client.describe_training_job(TrainingJobName=item["TrainingJobName"]) for item in found
        ]

    def events(self):
        """What the topic sent, by its attribute `event`: subjects and messages."""
        client, found = self.cloud.client("sqs"), []
        while True:
            taken = client.receive_message(QueueUrl=self._queue, MaxNumberOfMessages=10).get(
                "Messages", []
            )
            if not taken:
                return found
            for message in taken:
                body = json.loads(message["Body"])
                found.append((body["Subject"], body["Message"], body.get("MessageAttributes", {})))
                client.delete_message(QueueUrl=self._queue, ReceiptHandle=message["ReceiptHandle"])

    def _subscribe(self):
        sqs, name = self.cloud.client("sqs"), f"{RECEIVED}-{self.environment.name}"
        self._queue = sqs.create_queue(QueueName=name)["QueueUrl"]
        self.cloud.client("sns").subscribe(
            TopicArn=arns.alarm_topic(self.environment),
            Protocol="sqs",
            Endpoint=f"arn:aws:sqs:us-east-1:{ACCOUNT}:{name}",
        )


def engine(model, route="cpu", instance_type="ml.c5.xlarge", **fields):
    """One engine of an execution's input."""
    key = hashlib.sha256(model.encode()).hexdigest()[:20]
    return {
        "engineKey": key,
        "model": model,
        "computeCapability": "cpu",
        "route": route,
        "instanceType": instance_type,
        **fields,
    }


def write_trainer(state):
    """Puts the script into the image table."""
    path = state / "trainer.py"
    path.write_text(textwrap.dedent(TRAINER))
    images = json.loads((state / "images.yaml").read_text())
    python = str(next(iter(images["test-server"]["command"])))
    new = state / "images.new"
    new.write_text(json.dumps({**images, "test-trainer": {"command": [python, "-I", str(path)]}}))
    new.replace(state / "images.yaml")


@pytest.fixture(scope="module")
def machine(cloud):
    write_trainer(cloud.state)
    return Machine(cloud, "one")


def models(records):
    return sorted(record["model"] for record in records)


def variables(build):
    given = build["environment"]["environmentVariables"]
    return {variable["name"]: variable["value"] for variable in given}


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
    given = variables(build)
    tag = given.pop("ROUNDHOUSE_EXECUTION")
    assert given == {
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
        given["ROUNDHOUSE_MODEL"]: given["ROUNDHOUSE_PLAN_FROM"]
        for given in map(variables, machine.builds())
        if given["ROUNDHOUSE_MODEL"] in names
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
    assert [variables(build)["ROUNDHOUSE_MODEL"] for build in narrow.builds()] == ["slow-one"]
    assert narrow.events() == []
