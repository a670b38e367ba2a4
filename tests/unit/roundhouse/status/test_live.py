"""What an account runs, and how it differs from the files."""

from __future__ import annotations

from dataclasses import replace

import pytest
from botocore.exceptions import ClientError

from onboarding.environment_spec import ImagesSpec
from onboarding.names import image_uri
from roundhouse.deploy.stacks import endpoint_stack_name
from roundhouse.status.live import live_endpoint, stacks_without_files
from roundhouse.status.state import State
from roundhouse.status.table import drift_lines, live_table
from stacks.images import image_uris
from tests.unit.roundhouse.engines import copied_tree, local_deployments


@pytest.fixture(scope="module")
def deployment(tmp_path_factory):
    deployments = local_deployments(copied_tree(tmp_path_factory.mktemp("tree")))
    return next(deployment for deployment in deployments if not deployment.multi_model)


def uris(deployment):
    tags = {"python-server": "new", "triton": "new"}
    return image_uris(deployment.environment, tags)


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
    live = live_endpoint(Account(deployment), deployment, uris(deployment))
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
    live = live_endpoint(account, deployment, uris(deployment))
    assert any(line in drift for drift in live.drift)


def test_pinned_image_is_what_the_files_give(deployment):
    digest = f"sha256:{'d' * 64}"
    spec = deployment.environment
    images = {"pinned": {"triton": {"tag": "a" * 20, "digest": digest}}}
    pinned = spec.model_copy(update={"images": ImagesSpec.model_validate(images)})
    account = Account(deployment)
    (line,) = live_endpoint(
        account, replace(deployment, environment=pinned), uris(deployment)
    ).drift
    assert line == f"runs image roundhouse-local/triton:new, the files give {digest}"
    account.image = image_uri(spec, "triton", "a" * 20, digest)
    drift = live_endpoint(account, replace(deployment, environment=pinned), uris(deployment)).drift
    assert drift == ()


def test_an_endpoint_that_is_not_deployed_is_none(deployment):
    account = Account(deployment)
    account.exists = False
    assert live_endpoint(account, deployment, uris(deployment)) is None


def test_stacks_whose_file_is_gone_are_named_with_the_way_out(deployment):
    account = Account(deployment)
    account.stacks += ["roundhouse-local-endpoint-gone", "roundhouse-dev-endpoint-x", "other"]
    gone = stacks_without_files(account, [deployment])
    assert gone == ("roundhouse-local-endpoint-gone",)
    state = State(environment="local", cloud=None, unknown=(), engines=(), endpoints=())
    (line,) = drift_lines(replace(state, stacks_without_files=gone))
    assert "delete-stack --stack-name roundhouse-local-endpoint-gone" in line
