"""What an account runs of a text generator: components, copies, the last changes, drift."""

from __future__ import annotations

import io
from datetime import UTC, datetime

import pytest
from botocore.exceptions import ClientError
from rich.console import Console

from onboarding.names import endpoint_name
from roundhouse.status.live_generators import (
    live_generator,
    live_generator_lines,
    live_generators_table,
)
from tests.synth.generation_cases import SCALED, WITHOUT_COMPONENTS, generator

pytestmark = pytest.mark.unit

AT = datetime(2026, 11, 23, 21, 5, tzinfo=UTC)
POLICY = {"RollingUpdatePolicy": {"MaximumBatchSize": {"Type": "CAPACITY_PERCENT", "Value": 50}}}
NAME = "cloud-chat"


class Account:
    """One endpoint with a component, which runs as its files say until a test changes it."""

    def __init__(self, deployment):
        self.exists, self.live, self.pages = True, "config-1", ()
        self.key = deployment.entry.checkpoint_key
        self.has_component = deployment.spec.endpoint.kind == "inference-component"
        self.component = {
            "InferenceComponentName": NAME,
            "InferenceComponentStatus": "InService",
            "LastModifiedTime": AT,
            "RuntimeConfig": {"CurrentCopyCount": 2, "DesiredCopyCount": 2},
            "Specification": {"ModelName": "model-1"},
            "LastDeploymentConfig": POLICY,
        }
        self.more, self.activities, self.fields, self.refusal = [], {}, {}, None

    def __call__(self, service):
        return self

    def describe_endpoint(self, EndpointName):
        assert EndpointName == NAME
        if not self.exists:
            refusal = {"Code": "ValidationException", "Message": "Could not find endpoint"}
            raise ClientError({"Error": refusal}, "DescribeEndpoint")
        counts = {"CurrentInstanceCount": 1, "DesiredInstanceCount": 2}
        return {
            "EndpointStatus": "InService",
            "EndpointConfigName": self.live,
            "ProductionVariants": [{"VariantName": "AllTraffic", **counts}],
            **self.fields,
        }

    def describe_endpoint_config(self, EndpointConfigName):
        model = {} if self.has_component else {"ModelName": "model-1"}
        variant = {"VariantName": "AllTraffic", "InstanceType": "ml.g5.2xlarge", **model}
        return {"ProductionVariants": [variant]}

    def describe_model(self, ModelName):
        source = {"S3Uri": f"s3://bucket/checkpoints/{self.key}/"}
        return {"PrimaryContainer": {"ModelDataSource": {"S3DataSource": source}}}

    def describe_inference_component(self, InferenceComponentName):
        every = [self.component, *self.more]
        return next(i for i in every if i["InferenceComponentName"] == InferenceComponentName)

    def describe_stack_resources(self, StackName):
        found = {"EndpointConfig": "config-1", "Model": "model-1"}
        return {
            "StackResources": [
                {"ResourceType": f"AWS::SageMaker::{kind}", "PhysicalResourceId": name}
                for kind, name in found.items()
            ]
        }

    def describe_scaling_activities(self, ServiceNamespace, ResourceId, MaxResults, **_):
        assert (ServiceNamespace, MaxResults) == ("sagemaker", 1)
        if self.refusal is not None:
            raise ClientError({"Error": self.refusal}, "DescribeScalingActivities")
        return {"ScalingActivities": self.activities.get(ResourceId, [])}

    def get_paginator(self, name):
        self.listing = name
        return self

    def paginate(self, **_):
        if self.listing == "describe_alarms":
            dimension = {"Name": "EndpointName", "Value": NAME}
            yield {"MetricAlarms": [{"AlarmName": "cloud-chat-first", "Dimensions": [dimension]}]}
        else:
            components = [self.component, *self.more] if self.has_component else []
            yield {"InferenceComponents": components}


@pytest.fixture(scope="module")
def deployment():
    assert endpoint_name(generator().environment, "chat") == NAME
    return generator(**SCALED)


def text_of(live):
    shown = Console(file=io.StringIO(), width=300)
    shown.print(live_generators_table([live]))
    return shown.file.getvalue()


def test_a_component_that_runs_as_its_files_say_has_no_drift(deployment):
    account = Account(deployment)
    live = live_generator(account, deployment)
    (component,) = live.components
    assert (component.copies, component.desired_copies, component.is_zero) == (2, 2, False)
    assert component.serves == deployment.entry.checkpoint_key and live.drift == ()
    assert (live.instances, live.desired_instances, live.instance_type) == (1, 2, "ml.g5.2xlarge")
    assert live.alarms == ("cloud-chat-first",)
    assert list(live_generator_lines([live])) == [
        "cloud-chat: last change (rolling updates by 50% at a time), complete, 2026-11-23 21:05:00 "
        "UTC."
    ]
    assert "1 of 2 wanted x ml.g5.2xlarge" in text_of(live)


def test_an_endpoint_that_is_not_there_is_none(deployment):
    account = Account(deployment)
    account.exists = False
    assert live_generator(account, deployment) is None


def test_a_failed_update_says_why_and_what_runs(deployment):
    account = Account(deployment)
    reason = "The update was rolled back: alarms are in ALARM: cloud-chat-first."
    account.component |= {"FailureReason": reason, "Specification": {"ModelName": "model-0"}}
    live = live_generator(account, deployment)
    change, drift = live_generator_lines([live])
    assert "failed, 2026-11-23 21:05:00 UTC: The update was rolled back" in change
    assert drift.startswith("Drift: cloud-chat cloud-chat runs model model-0, its stack deployed")
    assert live.components[0].last_update.result == "failed"


@pytest.mark.parametrize("status", ["Creating", "Updating", "Deleting"])
def test_a_change_under_way_is_no_result_yet(deployment, status):
    account = Account(deployment)
    account.component["InferenceComponentStatus"] = status
    assert live_generator(account, deployment).components[0].last_update.result == "under way"


def test_zero_copies_and_the_last_scaling_have_a_line_each(deployment):
    account = Account(deployment)
    account.component["RuntimeConfig"] = {"CurrentCopyCount": 0, "DesiredCopyCount": 0}
    activity = {
        "Description": "Setting desired copy count to 0.",
        "Cause": "monitor alarm in state ALARM triggered policy scale",
        "StartTime": AT,
        "StatusCode": "Successful",
        "StatusMessage": "Successfully set desired copy count to 0.",
    }
    account.activities = {f"inference-component/{NAME}": [activity]}
    live = live_generator(account, deployment)
    assert live.components[0].is_zero and "scaled to zero" in text_of(live)
    _, scaling, zero = live_generator_lines([live])
    assert scaling == (
        "cloud-chat, scaling: Setting desired copy count to 0, complete, 2026-11-23 21:05:00 UTC: "
        "monitor alarm in state ALARM triggered policy scale."
    )
    assert "no copy runs; the next request fails and asks for one" in zero


def test_a_failed_scaling_has_its_own_words(deployment):
    account = Account(deployment)
    activity = {
        "Description": "Setting desired copy count to 3.",
        "StartTime": AT,
        "StatusCode": "Failed",
        "StatusMessage": "Failed to set: insufficient capacity.",
    }
    account.activities = {f"inference-component/{NAME}": [activity]}
    scaling = live_generator(account, deployment).components[0].last_scaling
    assert (scaling.result, scaling.reason) == ("failed", "Failed to set: insufficient capacity.")


@pytest.mark.parametrize("code", ["AccessDeniedException", "ThrottlingException"])
@pytest.mark.parametrize("fields", [SCALED, WITHOUT_COMPONENTS], ids=["component", "instances"])
def test_a_scaling_that_cannot_be_read_is_one_unknown_line(fields, code):
    deployment = generator(**fields)
    account = Account(deployment)
    account.refusal = {"Code": code, "Message": "refused"}
    live = live_generator(account, deployment)
    (line,) = (line for line in live_generator_lines([live]) if "scaling" in line)
    assert line.startswith("cloud-chat, scaling: last change, unknown: Application Auto Scaling: ")
    assert "refused" in line and live.drift == () and live.desired_instances == 2


def test_adapters_follow_their_base_and_those_that_no_file_gives_are_drift(deployment):
    account = Account(deployment)
    specification = {
        "BaseInferenceComponentName": NAME,
        "Container": {"ArtifactUrl": "s3://bucket/adapters/a/adapter.tar.gz"},
    }
    adapter = {
        **account.component,
        "InferenceComponentName": "cloud-chat-a",
        "InferenceComponentStatus": "Failed",
        "FailureReason": "no such file",
        "Specification": specification,
    }
    del adapter["RuntimeConfig"]  # optional, and an adapter is made without one
    account.more = [adapter]
    live = live_generator(account, deployment)
    assert [item.name for item in live.components] == [NAME, "cloud-chat-a"]
    assert live.components[1].serves == "s3://bucket/adapters/a/adapter.tar.gz"
    assert "cloud-chat-a (adapter of cloud-chat)" in text_of(live)
    assert live.drift == ("has component cloud-chat-a, and no file gives it",)


def test_another_checkpoint_and_a_component_that_is_gone_are_drift(deployment):
    account = Account(deployment)
    account.key = "f" * 20
    (line,) = live_generator(account, deployment).drift
    assert line.startswith(f"serves checkpoint {'f' * 20}, the files give ")
    account = Account(deployment)
    account.has_component = False
    assert live_generator(account, deployment).drift == (
        "has no component cloud-chat, the files give one",
    )


def test_an_endpoint_without_components_shows_its_instances():
    deployment = generator(**WITHOUT_COMPONENTS)
    account = Account(deployment)
    resource = f"endpoint/{NAME}/variant/AllTraffic"
    activity = {"Description": "Setting desired instance count to 2.", "StartTime": AT,
                "StatusCode": "InProgress"}  # fmt: skip
    account.activities = {resource: [activity]}
    account.fields = {"EndpointStatus": "Updating"}
    live = live_generator(account, deployment)
    assert (live.components, live.status, live.drift) == ((), "Updating", ())
    assert live.serves == deployment.entry.checkpoint_key and live.serves in text_of(live)
    (scaling,) = live_generator_lines([live])
    assert scaling.startswith("cloud-chat, scaling: Setting desired instance count to 2, under way")
