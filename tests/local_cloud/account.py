"""A client's view of the local cloud: boto3, templates and archives for tests."""

import contextlib
import io
import json
import os
import tarfile
import threading
import time
import uuid
from pathlib import Path

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from local_cloud import lifecycle

ROOT = Path(__file__).parents[2]
BUCKET = "engines"
ACCOUNT = "000000000000"
CREATED, UPDATED = ("CREATE_COMPLETE", ""), ("UPDATE_COMPLETE", "")
"""What `Account.deploy` returns of a stack without a failure."""
ROLE = f"arn:aws:iam::{ACCOUNT}:role/endpoint"
IMAGE = f"{ACCOUNT}.dkr.ecr.us-east-1.amazonaws.com/roundhouse-local/test-server:1"
BUILD_IMAGE = f"{ACCOUNT}.dkr.ecr.us-east-1.amazonaws.com/roundhouse-local/test-builder:1"
SLEEPS = "version: 0.2\nphases: {build: {commands: [sleep 600 & sleep 600]}}\n"
MOMENT_SECONDS, DEADLINE_SECONDS = 30, 240
"""What even a slow machine does sooner; what a test stops would go on for longer."""
MARK = f"TEST_MARK_{uuid.uuid4().hex[:12]}"
"""A variable of this run alone: another one on this machine makes endpoints of the same names."""


def new_client(address, service, account=ACCOUNT, region="us-east-1", **options):
    """A client of an account's root, in a region; `options` are botocore's."""
    settings = lifecycle.environment(address, account, region)
    return boto3.client(
        service,
        endpoint_url=settings["AWS_ENDPOINT_URL"],
        aws_access_key_id=settings["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=settings["AWS_SECRET_ACCESS_KEY"],
        region_name=settings["AWS_REGION"],
        config=Config(retries={"max_attempts": 1}, proxies={}, **options),
        verify=False,
    )


class Account:
    """Clients of one running local cloud, with what most tests need done by them.

    A stack's change may take `deadline_seconds`.
    """

    deadline_seconds = DEADLINE_SECONDS

    def __init__(self, address, state):
        self.address = address
        self.state = state
        self._clients = {}
        self._turn = threading.Lock()

    def client(self, service):
        # boto3 makes clients from one thread only; what it made, any number of threads may use.
        with self._turn:
            if service not in self._clients:
                self._clients[service] = new_client(
                    self.address,
                    service,
                    max_pool_connections=20,
                    parameter_validation=False,
                    connect_timeout=DEADLINE_SECONDS,
                    read_timeout=DEADLINE_SECONDS,
                )
            return self._clients[service]

    def close(self):
        for client in self._clients.values():
            client.close()

    def deploy(self, stack, resources):
        """Creates or updates a stack, and returns its final status and the first reason of a
        failure.
        """
        formation = self.client("cloudformation")
        template = json.dumps({"Resources": resources})
        try:
            formation.describe_stacks(StackName=stack)
        except formation.exceptions.ClientError:
            formation.create_stack(StackName=stack, TemplateBody=template)
        else:
            formation.update_stack(StackName=stack, TemplateBody=template)
        return self.settled(stack), self.reason(stack)

    def destroy(self, stack):
        self.client("cloudformation").delete_stack(StackName=stack)
        self.settled(stack)

    def settled(self, stack):
        formation = self.client("cloudformation")

        def status():
            try:
                now = formation.describe_stacks(StackName=stack)["Stacks"][0]["StackStatus"]
            except formation.exceptions.ClientError:
                return "GONE"
            return None if now.endswith("_IN_PROGRESS") else now

        return until(status, self.deadline_seconds)

    def reason(self, stack):
        formation = self.client("cloudformation")
        try:
            events = formation.describe_stack_events(StackName=stack)["StackEvents"]
        except formation.exceptions.ClientError:
            return ""
        newest_first = sorted(events, key=lambda event: event["Timestamp"], reverse=True)
        failed = [event for event in newest_first if event["ResourceStatus"].endswith("_FAILED")]
        return failed[0].get("ResourceStatusReason", "") if failed else ""

    def put_archive(self, key, greeting):
        self.client("s3").put_object(
            Bucket=BUCKET, Key=key, Body=archive({"greeting.txt": greeting})
        )
        return f"s3://{BUCKET}/{key}"

    def serve(self, name, greeting="hi", version="1", **options):
        """Creates the stack of an endpoint that greets; see `endpoint_resources` for options."""
        url = self.put_archive(f"{name}/{version}.tar.gz", greeting)
        assert self.deploy(name, endpoint_resources(name, url, version, **options)) == CREATED

    def wait_for(self, endpoint, status="InService"):
        """Waits for an endpoint's status, and describes it."""
        describe = self.client("sagemaker").describe_endpoint

        def described():
            endpoint_now = describe(EndpointName=endpoint)
            return endpoint_now if endpoint_now["EndpointStatus"] == status else None

        return until(described)

    def invoke(self, endpoint, body=b"hello", **options):
        answer = self.client("sagemaker-runtime").invoke_endpoint(
            EndpointName=endpoint, Body=body, **options
        )
        return json.loads(answer["Body"].read())


def track(cloud, resource, dimension, least, policy, **configuration):
    """Registers `least` to three instances or copies as a target, with a tracking policy of it."""
    scaling = cloud.client("application-autoscaling")
    target = {
        "ServiceNamespace": "sagemaker",
        "ResourceId": resource,
        "ScalableDimension": f"sagemaker:{dimension}",
    }
    scaling.register_scalable_target(**target, MinCapacity=least, MaxCapacity=3)
    scaling.put_scaling_policy(
        **target,
        PolicyName=policy,
        PolicyType="TargetTrackingScaling",
        TargetTrackingScalingPolicyConfiguration={"ScaleOutCooldown": 0, **configuration},
    )
    return target


def build(cloud, name, buildspec):
    """Makes a project, starts a build of it, and returns the build's id."""
    codebuild = cloud.client("codebuild")
    codebuild.create_project(
        name=name,
        source={"type": "NO_SOURCE", "buildspec": buildspec},
        artifacts={"type": "NO_ARTIFACTS"},
        serviceRole=ROLE,
        environment={
            "type": "LINUX_CONTAINER",
            "image": BUILD_IMAGE,
            "computeType": "BUILD_GENERAL1_SMALL",
            "environmentVariables": [{"name": MARK, "value": name}],
        },
    )
    return codebuild.start_build(projectName=name)["build"]["id"]


@contextlib.contextmanager
def refusal(message, code="ValidationException"):
    """Expects that a client's call is refused with a message and an error code."""
    with pytest.raises(ClientError, match=message) as error:
        yield error
    assert error.value.response["Error"]["Code"] == code


def until(condition, seconds=DEADLINE_SECONDS):
    """Polls a condition until it is true, and returns what it gives."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError(f"nothing within {seconds} s")


def archive(files):
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            tar.addfile(member, io.BytesIO(text.encode()))
    return content.getvalue()


def endpoint_resources(
    name, data_url, version="1", mode=None, environment=None, image=IMAGE, **variant
):
    """A model, an endpoint config and an endpoint, named as content names them: by version."""
    container = {
        "Image": image,
        "ModelDataUrl": data_url,
        "Environment": {MARK: name, **(environment or {})},
    }
    if mode is not None:
        container["Mode"] = mode
    production = {
        "VariantName": "AllTraffic",
        "ModelName": {"Fn::GetAtt": ["Model", "ModelName"]},
        "InstanceType": "ml.c7i.large",
        "InitialInstanceCount": 1,
        "InitialVariantWeight": 1,
        **variant,
    }
    return {
        "Model": {
            "Type": "AWS::SageMaker::Model",
            "Properties": {
                "ModelName": f"{name}-{version}",
                "PrimaryContainer": container,
                "ExecutionRoleArn": ROLE,
            },
        },
        "Config": {
            "Type": "AWS::SageMaker::EndpointConfig",
            "Properties": {
                "EndpointConfigName": f"{name}-{version}",
                "ProductionVariants": [production],
            },
        },
        "Endpoint": {
            "Type": "AWS::SageMaker::Endpoint",
            "Properties": {
                "EndpointName": name,
                "EndpointConfigName": {"Fn::GetAtt": ["Config", "EndpointConfigName"]},
            },
        },
    }


def processes_with(file, text):
    """Pids of the other processes whose file in /proc, `environ` or `cmdline`, holds a text."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        # One may have ended meanwhile.
        with contextlib.suppress(OSError):
            if text.encode() in (entry / file).read_bytes() and int(entry.name) != os.getpid():
                found.append(int(entry.name))
    return found


def marked_processes(mark):
    """Pids of the processes that carry a mark in their environment."""
    return processes_with("environ", f"{MARK}={mark}\0")


def wait_until_gone(mark):
    """Waits until no process carries a mark: one that was killed is gone a moment later."""
    return until(lambda: not marked_processes(mark), MOMENT_SECONDS)
