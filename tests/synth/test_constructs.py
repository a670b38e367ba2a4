"""Constructs as a CDK engineer uses them: without YAML, and with what an account has already."""

from __future__ import annotations

import re

import pytest
from aws_cdk import App, Environment, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from aws_cdk.assertions import Match, Template

from onboarding.environment_spec import EnvironmentSpec, GitlabSpec, NetworkSpec, SlackSpec
from onboarding.platform import serving_platforms
from roundhouse_cdk import (
    ArtifactStore,
    ArtifactStoreProps,
    EngineImages,
    EngineImagesProps,
    EnginePipeline,
    EnginePipelineProps,
    PipelineRoles,
    PipelineRolesProps,
    SlackAlarms,
    SlackAlarmsProps,
    VpcEndpoints,
    VpcEndpointsProps,
)
from tests.synth.pipeline import PROGRAMS

pytestmark = pytest.mark.synth

DEV = EnvironmentSpec(
    name="dev", account="111122223333", region="us-east-1", platform="triton-26.05"
)
BUCKET, KEY = "roundhouse-dev-111122223333-us-east-1", "arn:aws:kms:us-east-1:111122223333:key/own"
NETWORK = NetworkSpec(
    vpc_id="vpc-0000000a",
    subnet_ids=("subnet-0000000a", "subnet-0000000b"),
    security_group_ids=("sg-0000000a",),
    route_table_ids=("rtb-0000000a", "rtb-0000000b", "rtb-0000000c"),
)
TAGS = {"builder-cpu": "1", "builder-gpu": "2"}


@pytest.fixture
def stack() -> Stack:
    """A stack of a user's own."""
    return Stack(App(), "Own", env=Environment(account=DEV.account, region=DEV.region))


def pipeline(stack: Stack, tags: dict[str, str] = TAGS) -> EnginePipeline:
    platform = serving_platforms()[DEV.platform]
    props = EnginePipelineProps(
        environment=DEV, platform=platform, image_tags=tags, engines=PROGRAMS
    )
    return EnginePipeline(stack, "Engines", props=props)


def test_an_environment_stands_in_a_stack_of_ones_own(stack):
    store = ArtifactStore(stack, "Store", props=ArtifactStoreProps(environment=DEV))
    images = EngineImages(
        stack, "Images", props=EngineImagesProps(environment=DEV, images=("builder-cpu",))
    )
    engines = pipeline(stack)
    slack = SlackSpec(workspace="T0123ABCDEF", channel="C0123ABCDEF")
    props = SlackAlarmsProps(environment=DEV, slack=slack, topic=store.alarm_topic)
    alarms = SlackAlarms(stack, "Slack", props=props)
    forge = GitlabSpec(project="acme/models")
    roles = PipelineRoles(
        stack, "Roles", props=PipelineRolesProps(environment=DEV, forge=forge)
    ).roles
    reader = iam.Role(stack, "Reader", assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"))
    store.bucket.grant_read(reader)
    images.repositories["builder-cpu"].grant_pull(reader)
    engines.grant_start(reader)
    assert alarms.channel.role is not None and set(roles) == {"drift", "build", "deploy"}
    assert list(engines.builds) == ["cpu", "gpu"]
    template = Template.from_stack(stack)
    template.has_resource_properties(
        "AWS::IAM::Policy",
        {
            "PolicyDocument": {
                "Statement": Match.array_with(
                    [Match.object_like({"Action": "states:StartExecution"})]
                )
            }
        },
    )
    template.has_resource("AWS::S3::Bucket", {"DeletionPolicy": "RetainExceptOnCreate"})


def foreign_bucket(stack: Stack) -> None:
    bucket = s3.Bucket.from_bucket_name(stack, "Bucket", "company-artifacts")
    ArtifactStore(stack, "Store", props=ArtifactStoreProps(environment=DEV, bucket=bucket))


def no_route_table(stack: Stack) -> None:
    network = NETWORK.model_copy(update={"route_table_ids": ()})
    VpcEndpoints(stack, "Endpoints", props=VpcEndpointsProps(environment=DEV, network=network))


REFUSED = {
    foreign_bucket: (
        f"Own/Store: bucket company-artifacts is not this environment's; allowed: {BUCKET}; give"
        " that one, or none, and it is made"
    ),
    no_route_table: (
        "Own/Endpoints: no route table for the S3 endpoint; allowed: one or more; name those of"
        " the subnets in network.route_table_ids"
    ),
    lambda stack: pipeline(stack, {"builder-cpu": "1"}): (
        "Own/Engines: image_tags has no tag of builder-gpu, given builder-cpu; allowed: every"
        " builder's image of the platform; add it"
    ),
}


@pytest.mark.parametrize("build", REFUSED)
def test_refuses_props_that_cannot_be_deployed(stack, build):
    with pytest.raises(ValueError, match=re.escape(REFUSED[build])):
        build(stack)
