"""The stack of an endpoint with an inference component, and its invocations."""

import contextlib
import json
import threading

from tests.local_cloud.account import ACCOUNT, BUCKET, CREATED, MARK, ROLE, until

IMAGE = f"{ACCOUNT}.dkr.ecr.us-east-1.amazonaws.com/roundhouse-local/streaming-server:1"
GPU, NEEDED = (
    "ml.g5.xlarge",
    {"NumberOfAcceleratorDevicesRequired": 1, "MinMemoryRequiredInMb": 1024},
)
MANAGED = {"Status": "ENABLED", "MinInstanceCount": 0, "MaxInstanceCount": 3}
ROLLING = {
    "RollingUpdatePolicy": {
        "MaximumBatchSize": {"Type": "COPY_COUNT", "Value": 1},
        "WaitIntervalInSeconds": 0,
        "MaximumExecutionTimeoutInSeconds": 600,
    }
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
        return self

    def describe(self):
        return self.client.describe_inference_component(InferenceComponentName=self.name)

    def copies(self):
        """The running copies once nothing is under way, else None."""
        described = self.describe()
        settled = described["InferenceComponentStatus"] == "InService"
        return described["RuntimeConfig"]["CurrentCopyCount"] if settled else None

    def comes_to(self, copies):
        return until(lambda: self.copies() == copies)

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

    def parts(self, **request):
        with contextlib.closing(self.open_stream(**request)["Body"]) as body:
            return [event["PayloadPart"]["Bytes"] for event in body]


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


def component_resources(
    name, version="1", environment=None, copies=1, managed=None, instances=1, deployment=None,
    routing="LEAST_OUTSTANDING_REQUESTS", instance_type=GPU, image=IMAGE, startup_seconds=60,
):  # fmt: skip
    """A model of a prefix's files, an endpoint without a model, and the component."""
    source = {
        "S3Uri": f"s3://{BUCKET}/checkpoints/{name}/",
        "S3DataType": "S3Prefix",
        "CompressionType": "None",
    }
    container = {
        "Image": image,
        "ModelDataSource": {"S3DataSource": source},
        "Environment": {MARK: name, **(environment or {})},
    }
    variant = {
        "VariantName": "AllTraffic",
        "InstanceType": instance_type,
        "InitialInstanceCount": instances,
        "RoutingConfig": {"RoutingStrategy": routing},
    }
    component = {
        "InferenceComponentName": name,
        "EndpointName": {"Fn::GetAtt": ["Endpoint", "EndpointName"]},
        "VariantName": "AllTraffic",
        "Specification": {
            "ModelName": {"Fn::GetAtt": ["Model", "ModelName"]},
            "ComputeResourceRequirements": NEEDED,
            "StartupParameters": {
                "ContainerStartupHealthCheckTimeoutInSeconds": startup_seconds,
            },
        },
        "RuntimeConfig": {"CopyCount": copies},
    }
    if managed is not None:
        variant["ManagedInstanceScaling"] = managed
    if deployment is not None:
        component["DeploymentConfig"] = deployment
    properties = {
        "Model": {
            "ModelName": f"{name}-{version}",
            "PrimaryContainer": container,
            "ExecutionRoleArn": ROLE,
        },
        "EndpointConfig": {
            "EndpointConfigName": f"{name}-{instance_type.replace('.', '-')}",
            "ExecutionRoleArn": ROLE,
            "ProductionVariants": [variant],
        },
        "Endpoint": {
            "EndpointName": name,
            "EndpointConfigName": {"Fn::GetAtt": ["EndpointConfig", "EndpointConfigName"]},
        },
        "InferenceComponent": component,
    }
    return {
        kind: {"Type": f"AWS::SageMaker::{kind}", "Properties": fields}
        for kind, fields in properties.items()
    }
