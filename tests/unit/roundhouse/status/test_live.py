"""What an account runs, and how it differs from the files."""

from __future__ import annotations

from dataclasses import replace

import pytest
from botocore.exceptions import ClientError

from onboarding.names import image_uri
from roundhouse.deploy.stacks import endpoint_stack_name
from roundhouse.status.live import live_endpoint, stacks_without_files
from roundhouse.status.state import State
from roundhouse.status.table import drift_lines, live_table
from tests.unit.roundhouse.engines import copied_tree, local_deployments

TAGS = {"python-server": "new", "triton": "new"}


@pytest.fixture(scope="module")
def deployment(tmp_path_factory):
    deployments = local_deployments(copied_tree(tmp_path_factory.mktemp("tree")))
    return next(deployment for deployment in deployments if not deployment.multi_model)


class Account:
    """One endpoint that runs as its files say, until a test changes it."""

    def __init__(self, deployment):
        (variant,) = deployment.variants
        self.live = self.deployed = "config-1"
        self.engine, self.instances = variant.targets[0].engine_key, 1
        self.instance_type = variant.instance_type.name
        self.image = image_uri(deployment.environment, "triton", "new")
        self.variant, self.exists = variant.name, True
        self.stacks = [endpoint_stack_name(deployment)]

    def __call__(self, service):
        return self

    def describe_endpoint(self, EndpointName):
        if not self.exists:
            refusal = {"Code": "ValidationException", "Message": "Could not find endpoint"}
            raise ClientError({"Error": refusal}, "DescribeEndpoint")
        variant = {
            "VariantName": self.variant,
            "CurrentInstanceCount": 0,
            "DesiredInstanceCount": self.instances,
            "DeployedImages": [{"SpecifiedImage": self.image}],
        }
        return {
            "EndpointStatus": "InService",
            "EndpointConfigName": self.live,
            "ProductionVariants": [variant],
        }

    def describe_endpoint_config(self, EndpointConfigName):
        spec = {"VariantName": self.variant, "ModelName": "m", "InstanceType": self.instance_type}
        return {"ProductionVariants": [spec]}

    def describe_model(self, ModelName):
        url = f"s3://bucket/engines/{self.engine}/model.tar.gz"
        return {"PrimaryContainer": {"ModelDataUrl": url}}

    def describe_stack_resources(self, StackName):
        kind = "AWS::SageMaker::EndpointConfig"
        return {"StackResources": [{"ResourceType": kind, "PhysicalResourceId": self.deployed}]}

    def get_paginator(self, name):
        self.listing = name
        return self

    def paginate(self, **_):
        if self.listing == "describe_alarms":
            yield {"MetricAlarms": []}
        else:
            yield {
                "StackSummaries": [
                    {"StackName": name, "StackStatus": "UPDATE_COMPLETE"} for name in self.stacks
                ]
            }


def test_an_endpoint_that_runs_as_its_files_say_has_no_drift(deployment):
    live = live_endpoint(Account(deployment), deployment, TAGS)
    assert live.drift == () and live.alarms == () and live.config == "config-1"
    (variant,) = live.variants
    assert variant.engines == (deployment.targets[0].engine_key,)
    assert live_table([live]).row_count == 1


@pytest.mark.parametrize(
    ("field", "value", "line"),
    [
        ("live", "config-0", "serves endpoint config config-0, its stack deployed config-1"),
        ("engine", "f" * 20, f"serves engine {'f' * 20}, the files give"),
        ("image", "registry.example/roundhouse-local/triton:old",
         "runs image roundhouse-local/triton:old, the files give new"),
        ("instances", 99, "wants 99 instances, the files give"),
        ("instance_type", "ml.p5.48xlarge", "runs on ml.p5.48xlarge, the files give"),
        ("variant", "other", "is in the files, and does not run"),
    ],
)  # fmt: skip
def test_what_differs_from_the_files_is_named(deployment, field, value, line):
    account = Account(deployment)
    setattr(account, field, value)
    live = live_endpoint(account, deployment, TAGS)
    assert any(line in drift for drift in live.drift)


def test_an_endpoint_that_is_not_deployed_is_none(deployment):
    account = Account(deployment)
    account.exists = False
    assert live_endpoint(account, deployment, TAGS) is None


def test_stacks_whose_file_is_gone_are_named_with_the_way_out(deployment):
    account = Account(deployment)
    account.stacks += ["roundhouse-local-endpoint-gone", "roundhouse-dev-endpoint-x", "other"]
    gone = stacks_without_files(account, [deployment])
    assert gone == ("roundhouse-local-endpoint-gone",)
    state = State(environment="local", cloud=None, unknown=(), engines=(), endpoints=())
    (line,) = drift_lines(replace(state, stacks_without_files=gone))
    assert "delete-stack --stack-name roundhouse-local-endpoint-gone" in line
