"""Inference components: streamed answers, updates in place, adapters, and copies that scale."""

import contextlib
import json
import threading
import time

import pytest
from botocore.exceptions import ClientError

from tests.local_cloud.account import (
    BUCKET,
    CREATED,
    IMAGE,
    MARK,
    ROLE,
    UPDATED,
    archive,
    refusal,
    track,
    until,
)

pytestmark = pytest.mark.local_cloud

NEEDED = {"NumberOfAcceleratorDevicesRequired": 1, "MinMemoryRequiredInMb": 1024}
MANAGED = {"Status": "ENABLED", "MinInstanceCount": 0, "MaxInstanceCount": 3}
BATCH = {"Type": "COPY_COUNT", "Value": 1}
ROLLING = {
    "RollingUpdatePolicy": {
        "MaximumBatchSize": BATCH,
        "WaitIntervalInSeconds": 0,
        "MaximumExecutionTimeoutInSeconds": 600,
    }
}


def component_resources(name, version="1", environment=None, copies=1):
    """A model of a prefix's files, an endpoint without a model, and the component."""
    source = {
        "S3Uri": f"s3://{BUCKET}/checkpoints/{name}/",
        "S3DataType": "S3Prefix",
        "CompressionType": "None",
    }
    container = {
        "Image": IMAGE,
        "ModelDataSource": {"S3DataSource": source},
        "Environment": {MARK: name, **(environment or {})},
    }
    variant = {
        "VariantName": "AllTraffic",
        "InstanceType": "ml.g5.xlarge",
        "InitialInstanceCount": 1,
        "RoutingConfig": {"RoutingStrategy": "LEAST_OUTSTANDING_REQUESTS"},
        "ManagedInstanceScaling": MANAGED,
    }
    properties = {
        "Model": {
            "ModelName": f"{name}-{version}",
            "PrimaryContainer": container,
            "ExecutionRoleArn": ROLE,
        },
        "EndpointConfig": {
            "EndpointConfigName": name,
            "ExecutionRoleArn": ROLE,
            "ProductionVariants": [variant],
        },
        "Endpoint": {
            "EndpointName": name,
            "EndpointConfigName": {"Fn::GetAtt": ["EndpointConfig", "EndpointConfigName"]},
        },
        "InferenceComponent": {
            "InferenceComponentName": name,
            "EndpointName": {"Fn::GetAtt": ["Endpoint", "EndpointName"]},
            "VariantName": "AllTraffic",
            "Specification": {
                "ModelName": {"Fn::GetAtt": ["Model", "ModelName"]},
                "ComputeResourceRequirements": NEEDED,
                "StartupParameters": {"ContainerStartupHealthCheckTimeoutInSeconds": 60},
            },
            "RuntimeConfig": {"CopyCount": copies},
            "DeploymentConfig": ROLLING,
        },
    }
    return {
        kind: {"Type": f"AWS::SageMaker::{kind}", "Properties": fields}
        for kind, fields in properties.items()
    }


class Hosted:
    """An endpoint and its inference component of one name."""

    def __init__(self, cloud, name):
        self.cloud, self.name = cloud, name
        self.client = cloud.client("sagemaker")
        self.runtime = cloud.client("sagemaker-runtime")

    def deploy(self, version="1", expected=CREATED, **options):
        self.cloud.client("s3").put_object(
            Bucket=BUCKET, Key=f"checkpoints/{self.name}/weights/part.txt", Body=b"weights"
        )
        resources = component_resources(self.name, version, **options)
        assert self.cloud.deploy(self.name, resources) == expected

    def describe(self):
        return self.client.describe_inference_component(InferenceComponentName=self.name)

    def comes_to(self, copies):
        """Waits until nothing is under way, and so many copies run."""

        def settled():
            shown = self.describe()
            is_in_service = shown["InferenceComponentStatus"] == "InService"
            return is_in_service and shown["RuntimeConfig"]["CurrentCopyCount"] == copies

        return until(settled)

    def settle(self):
        """Waits until no change is under way, and describes the component."""

        def described():
            now = self.describe()
            return now if now["InferenceComponentStatus"] in ("InService", "Failed") else None

        return until(described)

    def invoke(self, **request):
        answer = self.runtime.invoke_endpoint(
            EndpointName=self.name,
            InferenceComponentName=request.pop("component", self.name),
            ContentType="application/json",
            Body=json.dumps(request).encode(),
        )
        return json.loads(answer["Body"].read())

    def open_stream(self, **request):
        return self.runtime.invoke_endpoint_with_response_stream(
            EndpointName=self.name,
            InferenceComponentName=self.name,
            ContentType="application/json",
            Body=json.dumps({"stream": True, **request}).encode(),
        )


class Streams:
    """Streams that run in threads of their own; `texts` are whole answers, `faults` the others."""

    def __init__(self, hosted, count, **request):
        self.texts, self.faults, self._begun = [], [], threading.Semaphore(0)
        self._threads = [
            threading.Thread(target=self._read, args=(hosted, request)) for _ in range(count)
        ]
        for thread in self._threads:
            thread.start()
        for _ in range(count):
            assert self._begun.acquire(timeout=120)

    def _read(self, hosted, request):
        text = b""
        try:
            with contextlib.closing(hosted.open_stream(**request)["Body"]) as body:
                for event in body:
                    if not text:
                        self._begun.release()
                    text += event["PayloadPart"]["Bytes"]
            self.texts.append(text.decode())
        except Exception as error:
            self.faults.append(error)
            self._begun.release()

    def join(self):
        for thread in self._threads:
            thread.join(120)
        return self


@pytest.fixture
def hosted(cloud, request):
    made = Hosted(cloud, request.node.name.replace("_", "-").removeprefix("test-")[:40].strip("-"))
    yield made
    cloud.destroy(made.name)


def test_streamed_parts_split_characters_and_a_client_that_leaves_frees_its_copy(hosted):
    hosted.deploy()
    answer = hosted.open_stream(events=3)
    assert answer["ContentType"] == "text/event-stream"
    assert answer["InvokedProductionVariant"] == "AllTraffic"
    with contextlib.closing(answer["Body"]) as body:
        parts = [event["PayloadPart"]["Bytes"] for event in body]
    lines = [line.removeprefix("data: ") for line in b"".join(parts).decode().split("\n\n") if line]
    assert [json.loads(line)["number"] for line in lines[:-1]] == [0, 1, 2]
    assert lines[-1] == "[DONE]"
    with pytest.raises(UnicodeDecodeError):
        parts[0].decode()
    stream = hosted.open_stream(events=200, seconds=0.05)["Body"]
    next(iter(stream))
    stream.close()
    begin = time.monotonic()
    assert hosted.invoke()["greeting"] == "hi"
    assert time.monotonic() - begin < 5


def test_an_update_in_place_cuts_no_stream_and_a_failed_one_leaves_the_old_copies(hosted):
    """New copies answer before old ones end, and old ones end after their last stream."""
    hosted.deploy(copies=2)
    streams = Streams(hosted, 8, events=8, seconds=0.25)
    hosted.deploy("2", UPDATED, copies=2, environment={"GREETING": "hello"})
    assert hosted.invoke()["greeting"] == "hello"
    streams.join()
    assert not streams.faults
    assert all(text.endswith("data: [DONE]\n\n") for text in streams.texts)
    assert hosted.describe()["LastDeploymentConfig"] == ROLLING
    hosted.comes_to(2)
    failing = component_resources(hosted.name, "3", {"SERVER_MODE": "exits"}, 2)
    status, reason = hosted.cloud.deploy(hosted.name, failing)
    assert status == "UPDATE_ROLLBACK_COMPLETE"
    assert "did not pass the ping health check" in reason
    assert hosted.invoke()["greeting"] == "hello"
    assert hosted.settle()["Specification"]["ModelName"] == f"{hosted.name}-2"


def test_an_adapter_is_served_by_the_copies_of_its_base(cloud, hosted):
    hosted.deploy()
    cloud.client("s3").put_object(
        Bucket=BUCKET, Key="adapter.tar.gz", Body=archive({"adapter_config.json": "{}"})
    )
    adapter = f"{hosted.name}-legal"
    container = {"ArtifactUrl": f"s3://{BUCKET}/adapter.tar.gz"}
    hosted.client.create_inference_component(
        InferenceComponentName=adapter,
        EndpointName=hosted.name,
        Specification={"BaseInferenceComponentName": hosted.name, "Container": container},
    )
    assert Hosted(cloud, adapter).settle()["InferenceComponentStatus"] == "InService"
    answer = hosted.invoke(component=adapter)
    assert (answer["adapter"], answer["files"]) == (adapter, ["adapter_config.json"])
    assert hosted.invoke()["adapter"] is None
    with refusal("it is the base of"):
        hosted.client.delete_inference_component(InferenceComponentName=hosted.name)
    hosted.client.update_inference_component_runtime_config(
        InferenceComponentName=hosted.name, DesiredRuntimeConfig={"CopyCount": 2}
    )
    hosted.comes_to(2)
    assert {hosted.invoke(component=adapter)["adapter"] for _ in range(6)} == {adapter}
    hosted.client.delete_inference_component(InferenceComponentName=adapter)
    listed = hosted.client.list_inference_components
    until(lambda: not listed(NameContains=adapter)["InferenceComponents"])


CONCURRENCY = "SageMakerInferenceComponentConcurrentRequestsPerCopyHighResolution"


def register(hosted):
    """Registers copies as a target that concurrency scales in and out and a request from zero."""
    target = track(
        hosted.cloud,
        f"inference-component/{hosted.name}",
        "inference-component:DesiredCopyCount",
        0,
        "concurrency",
        TargetValue=2,
        PredefinedMetricSpecification={"PredefinedMetricType": CONCURRENCY},
        ScaleInCooldown=0,
    )
    policy = hosted.cloud.client("application-autoscaling").put_scaling_policy(
        **target,
        PolicyName="from-zero",
        PolicyType="StepScaling",
        StepScalingPolicyConfiguration={
            "AdjustmentType": "ChangeInCapacity",
            "MetricAggregationType": "Maximum",
            "Cooldown": 60,
            "StepAdjustments": [{"MetricIntervalLowerBound": 0, "ScalingAdjustment": 1}],
        },
    )
    hosted.cloud.client("cloudwatch").put_metric_alarm(
        AlarmName=f"{hosted.name}-from-zero",
        AlarmActions=[policy["PolicyARN"]],
        Namespace="AWS/SageMaker",
        MetricName="NoCapacityInvocationFailures",
        Dimensions=[{"Name": "InferenceComponentName", "Value": hosted.name}],
        Statistic="Maximum",
        Period=30,
        EvaluationPeriods=1,
        DatapointsToAlarm=1,
        Threshold=1,
        ComparisonOperator="GreaterThanOrEqualToThreshold",
        TreatMissingData="missing",
    )


def answer_of(hosted):
    """The answer, or None while the component has no copy; a retry wakes it, as a client's does."""
    try:
        return hosted.invoke()
    except ClientError as error:
        assert error.response["Error"]["Code"] == "ValidationError"
        return None


def test_copies_scale_out_to_zero_and_from_zero(hosted):
    hosted.deploy()
    register(hosted)
    streams = Streams(hosted, 6, events=100, seconds=0.1)
    hosted.comes_to(3)
    assert not streams.join().faults
    hosted.comes_to(0)
    describe = hosted.client.describe_endpoint

    def instances():
        (variant,) = describe(EndpointName=hosted.name)["ProductionVariants"]
        return variant["CurrentInstanceCount"]

    until(lambda: instances() == 0)
    with refusal("Inference Component has no capacity to process this request", "ValidationError"):
        hosted.invoke()
    assert until(lambda: answer_of(hosted))["greeting"] == "hi"
