"""Props -> templates of the endpoint constructs, as somebody uses them without any YAML of ours."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from aws_cdk import App, CfnCondition, CfnParameter, CfnResource, Environment, Fn, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from aws_cdk.assertions import Template

from onboarding.environment_spec import EnvironmentSpec, NetworkSpec
from onboarding.hosting_spec import AsynchronousSpec
from roundhouse_cdk import (
    ComponentProps,
    ContainerProps,
    MultiModelEndpoint,
    PoolProps,
    RealtimeEndpoint,
    RealtimeEndpointProps,
    RolloutProps,
    TextGenerationEndpoint,
    TextGenerationEndpointProps,
    VariantProps,
)

pytestmark = pytest.mark.synth

DEMO = EnvironmentSpec(
    name="demo", account="111122223333", region="us-east-1", platform="triton-26.06"
)
IMAGE = "111122223333.dkr.ecr.us-east-1.amazonaws.com/roundhouse-demo/triton:1"
ENGINE = ContainerProps(image_uri=IMAGE, path="engines/0123456789abcdef0123/model.tar.gz")
OWN = VariantProps(pools=[PoolProps(instance_type="ml.g5.xlarge", container=ENGINE)])
PLAIN = RealtimeEndpointProps(environment=DEMO, name="embedder", variants=[OWN])
CHAT = TextGenerationEndpointProps(
    environment=DEMO,
    name="chat",
    container=ContainerProps(image_uri=IMAGE, path="checkpoints/0123456789abcdef0123/"),
    instance_type="ml.g6e.2xlarge",
    component=ComponentProps(gpus=1, memory_mib=8192),
)


def new_stack() -> Stack:
    env = Environment(account=DEMO.account, region=DEMO.region)
    return Stack(App(analytics_reporting=False), "Stack", env=env)


def resources(stack: Stack, kind: str) -> dict[str, Any]:
    found = Template.from_stack(stack).to_json()["Resources"]
    return {name: item for name, item in found.items() if item["Type"] == f"AWS::{kind}"}


def only(stack: Stack, kind: str) -> dict[str, Any]:
    (item,) = resources(stack, kind).values()
    return dict(item)


def with_variables(**variables: str) -> RealtimeEndpointProps:
    container = dataclasses.replace(ENGINE, variables=variables)
    pool = dataclasses.replace(OWN.pools[0], container=container)
    return dataclasses.replace(PLAIN, variants=[dataclasses.replace(OWN, pools=[pool])])


def test_endpoint_needs_no_yaml_and_two_stand_in_one_stack():
    stack = new_stack()
    one = RealtimeEndpoint(stack, "One", props=PLAIN)
    RealtimeEndpoint(stack, "Two", props=dataclasses.replace(PLAIN, name="ranker"))
    many = dataclasses.replace(PLAIN, name="many", engines=[ENGINE.path])
    MultiModelEndpoint(stack, "Many", props=many)
    TextGenerationEndpoint(stack, "Chat", props=CHAT)
    found = resources(stack, "SageMaker::Endpoint").values()
    names = {item["Properties"]["EndpointName"] for item in found}
    assert names == {"demo-embedder", "demo-ranker", "demo-many", "demo-chat"}
    assert (
        one.endpoint_name == "demo-embedder" and one.metric("Invocations", "Sum").statistic == "Sum"
    )


def test_dependencies_from_outside_are_kept_on_every_resource():
    stack = new_stack()
    endpoint = TextGenerationEndpoint(stack, "Chat", props=CHAT)
    outside = s3.CfnBucket(stack, "Outside")
    for construct in (endpoint.config, endpoint.endpoint, endpoint.model, endpoint.component):
        before = construct.node.dependencies
        construct.node.add_dependency(outside)
        assert len(construct.node.dependencies) > len(before)
    kinds = ("EndpointConfig", "Endpoint", "Model", "InferenceComponent")
    for kind in kinds:
        assert "Outside" in only(stack, f"SageMaker::{kind}")["DependsOn"]


def test_role_follows_another_logical_id_and_takes_grants_before_the_endpoint_starts():
    stack = new_stack()
    endpoint = RealtimeEndpoint(stack, "Endpoint", props=PLAIN)
    role = endpoint.role.node.default_child
    assert isinstance(role, CfnResource)
    role.override_logical_id("Renamed")
    s3.Bucket(stack, "Data").grant_read(endpoint.role)
    model, policies = only(stack, "SageMaker::Model"), resources(stack, "IAM::Policy")
    assert model["Properties"]["ExecutionRoleArn"] == {"Fn::GetAtt": ["Renamed", "Arn"]}
    assert {str(item["Properties"]["Roles"]) for item in policies.values()} == {
        "[{'Ref': 'Renamed'}]"
    }
    (granted,) = [name for name, item in policies.items() if "s3:GetBucket*" in str(item)]
    assert {granted, "Renamed"} <= set(only(stack, "SageMaker::Endpoint")["DependsOn"])


def test_models_come_from_a_bucket_of_ones_own_that_the_role_may_read():
    stack = new_stack()
    key = kms.Key(stack, "Key")
    bucket = s3.Bucket(stack, "Models", encryption_key=key)
    named = s3.Bucket.from_bucket_name(stack, "Named", "company-models")
    RealtimeEndpoint(stack, "One", props=dataclasses.replace(PLAIN, bucket=bucket))
    many = dataclasses.replace(PLAIN, name="many", bucket=named, engines=[ENGINE.path])
    MultiModelEndpoint(stack, "Many", props=many)
    TextGenerationEndpoint(stack, "Chat", props=dataclasses.replace(CHAT, bucket=named))
    assert len(resources(stack, "SageMaker::Model")) == 3
    text = json.dumps(Template.from_stack(stack).to_json())
    assert "roundhouse-demo-111122223333" not in json.dumps(resources(stack, "SageMaker::Model"))
    assert '"s3://company-models/checkpoints/0123456789abcdef0123/"' in text
    (granted,) = [
        item["Properties"]["PolicyDocument"]["Statement"]
        for name, item in resources(stack, "IAM::Policy").items()
        if name.startswith("OneRole")
    ]
    assert [item["Action"] for item in granted] == [
        ["s3:GetObject*", "s3:GetBucket*", "s3:List*"],
        ["kms:Decrypt", "kms:DescribeKey"],
    ]
    versions = [name for name in resources(stack, "IAM::Policy") if "VersionPolicy" in name]
    assert len(versions) == 3
    for name in versions:
        assert "s3:" not in json.dumps(resources(stack, "IAM::Policy")[name])


def test_log_groups_have_the_key_that_the_environment_names():
    arn = "arn:aws:kms:us-east-1:111122223333:key/own"
    keys = []
    for environment in (DEMO, DEMO.model_copy(update={"kms_key_arn": arn})):
        stack = new_stack()
        props = dataclasses.replace(CHAT, environment=environment)
        TextGenerationEndpoint(stack, "Chat", props=props)
        groups = resources(stack, "Logs::LogGroup").values()
        keys += [item["Properties"].get("KmsKeyId") for item in groups]
    assert keys == [None, None, arn, arn]


def test_a_caller_may_invoke_the_endpoint_and_nothing_else():
    stack = new_stack()
    endpoint = RealtimeEndpoint(stack, "Endpoint", props=PLAIN)
    caller = iam.User(stack, "Caller")
    endpoint.grant_invoke(caller)
    (policy,) = [
        item["Properties"]["PolicyDocument"]["Statement"]
        for name, item in resources(stack, "IAM::Policy").items()
        if name.startswith("Caller")
    ]
    (ref,) = resources(stack, "SageMaker::Endpoint")
    assert (
        policy[0]["Resource"] == {"Ref": ref} and "sagemaker:InvokeEndpoint" in policy[0]["Action"]
    )


def test_intrinsic_functions_and_escape_hatches_reach_the_template():
    stack = new_stack()
    given = CfnParameter(stack, "Mode", default="fast")
    condition = CfnCondition(
        stack, "Fast", expression=Fn.condition_equals(given.value_as_string, "fast")
    )
    chosen = Fn.condition_if(condition.logical_id, "a", "b").to_string()
    props = with_variables(REGION=Fn.sub("${AWS::Region}-x"), CHOICE=chosen)
    endpoint = RealtimeEndpoint(stack, "Endpoint", props=props)
    endpoint.config.add_property_override("ProductionVariants.0.VolumeSizeInGB", 100)
    container = only(stack, "SageMaker::Model")["Properties"]["PrimaryContainer"]
    assert container["Environment"] == {
        "CHOICE": {"Fn::If": ["Fast", "a", "b"]},
        "REGION": {"Fn::Sub": "${AWS::Region}-x"},
    }
    config = only(stack, "SageMaker::EndpointConfig")["Properties"]
    assert config["ProductionVariants"][0]["VolumeSizeInGB"] == 100


def network(*subnets: str) -> EnvironmentSpec:
    found = NetworkSpec(
        vpc_id="vpc-00000000", subnet_ids=subnets, security_group_ids=("sg-00000000",)
    )
    return DEMO.model_copy(update={"network": found})


SHADOW = dataclasses.replace(OWN, name="shadow", is_shadow=True)
REFUSED: list[tuple[dict[str, Any], str]] = [
    (
        {"environment": network("subnet-00000000")},
        "one subnet, so one zone: subnet-00000000; allowed: 2 subnets",
    ),
    ({"environment": network("subnet-00000000", "subnet-00000000")}, "one subnet, so one zone"),
    ({"variants": []}, "variants with instances: none; allowed: one production variant or more"),
    ({"variants": [SHADOW]}, "variants with instances: shadow"),
    ({"variants": [dataclasses.replace(OWN, pools=[])]}, "each with a pool"),
    ({"variants": [OWN, OWN]}, "names of variants: AllTraffic, AllTraffic; allowed: different"),
    ({"variants": [OWN, SHADOW], "asynchronous": AsynchronousSpec()}, "one production variant"),
    ({"rollout": RolloutProps(kind="canary", step_percent=51)}, "51 %; allowed: 0 to 50 %"),
    ({"rollout": RolloutProps(kind="linear", step_percent=9)}, "9 %; allowed: 10 to 50 %"),
    ({"rollout": RolloutProps(alarm_names=["a"] * 2)}, "a, a; allowed: 10 different ones"),
    ({"rollout": RolloutProps(alarm_names=list("abcdefghijk"))}, "10 different ones at most"),
    ({"variants": with_variables(Ref="main").variants}, "Ref; allowed: any other name; rename it"),
    (
        {"variants": with_variables(**{f"V{n}": "1" for n in range(101)}).variants},
        "variables of a container: 101; allowed: 100 at most",
    ),
]


@pytest.mark.parametrize(("changes", "words"), REFUSED, ids=[words for _, words in REFUSED])
def test_refuses_props_that_aws_refuses(changes, words):
    with pytest.raises(ValueError, match=r"^Stack/Endpoint: ") as refused:
        RealtimeEndpoint(new_stack(), "Endpoint", props=dataclasses.replace(PLAIN, **changes))
    assert words in str(refused.value)


def test_refuses_a_queue_of_many_models():
    queue = dataclasses.replace(PLAIN, asynchronous=AsynchronousSpec(), engines=[])
    with pytest.raises(ValueError, match="a multi-model endpoint cannot be asynchronous: embedder"):
        MultiModelEndpoint(new_stack(), "Endpoint", props=queue)
