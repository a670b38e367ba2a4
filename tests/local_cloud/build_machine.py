"""A build machine in the local cloud whose builds and training jobs are short scripts.

What they do is in the model's name.
"""

import hashlib
import io
import json
import textwrap
import zipfile

import yaml
from aws_cdk import aws_codebuild as codebuild

from onboarding import arns, names
from onboarding.environment_spec import EnvironmentSpec
from roundhouse.deploy.builds.execution import Execution
from roundhouse_cdk.engine_pipeline import BuildPrograms
from tests.local_cloud.account import ACCOUNT, BUILD_IMAGE, CREATED, ROLE, until
from tests.synth.pipeline import TAG, pipeline_resources

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
tries = ml / "checkpoints/tries"
print("tries before", tries.read_text() if tries.exists() else "none", flush=True)
tries.write_text(wishes["commit"])
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
