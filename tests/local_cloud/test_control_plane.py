"""SageMaker's and Application Auto Scaling's APIs: records, and refusals with AWS's codes."""

import pytest
from botocore.exceptions import ClientError

from tests.local_cloud.account import (
    CREATED,
    IMAGE,
    ROLE,
    UPDATED,
    endpoint_resources,
    refusal,
    until,
)

pytestmark = pytest.mark.local_cloud
TARGET = {
    "ServiceNamespace": "sagemaker",
    "ResourceId": "endpoint/scaled/variant/AllTraffic",
    "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
}


@pytest.fixture
def sagemaker(cloud):
    return cloud.client("sagemaker")


def variant(**changes):
    return {
        "VariantName": "AllTraffic",
        "ModelName": "kept",
        "InstanceType": "ml.c7i.large",
        "InitialInstanceCount": 1,
        **changes,
    }


@pytest.fixture(scope="module")
def model(cloud):
    url = cloud.put_archive("kept/model.tar.gz", "hi")
    cloud.client("sagemaker").create_model(
        ModelName="kept",
        ExecutionRoleArn=ROLE,
        PrimaryContainer={"Image": IMAGE, "ModelDataUrl": url},
    )
    yield cloud
    cloud.client("sagemaker").delete_model(ModelName="kept")


def test_endpoint_made_by_the_api_becomes_in_service(model, sagemaker):
    sagemaker.create_endpoint_config(EndpointConfigName="by-api", ProductionVariants=[variant()])
    sagemaker.create_endpoint(EndpointName="by-api", EndpointConfigName="by-api")

    model.wait_for("by-api")
    assert model.invoke("by-api")["greeting"] == "hi"
    with pytest.raises(ClientError, match="Cannot create already existing endpoint"):
        sagemaker.create_endpoint(EndpointName="by-api", EndpointConfigName="by-api")
    sagemaker.delete_endpoint(EndpointName="by-api")
    until(lambda: not sagemaker.list_endpoints(NameContains="by-api")["Endpoints"])
    sagemaker.delete_endpoint_config(EndpointConfigName="by-api")


def test_metrics_config_is_kept_and_detailed_unless_the_request_says_otherwise(model, sagemaker):
    given = {"EnableEnhancedMetrics": True, "MetricPublishFrequencyInSeconds": 10}
    variants = [variant()]
    for name, metrics in (("detailed", given), ("plain", {"EnableDetailedObservability": False})):
        sagemaker.create_endpoint_config(
            EndpointConfigName=name, ProductionVariants=variants, MetricsConfig=metrics
        )
        found = sagemaker.describe_endpoint_config(EndpointConfigName=name)["MetricsConfig"]
        assert found == {"EnableDetailedObservability": True, **metrics}
        sagemaker.delete_endpoint_config(EndpointConfigName=name)
    with refusal("MetricPublishFrequencyInSeconds 20 is not valid"):
        sagemaker.create_endpoint_config(
            EndpointConfigName="refused",
            ProductionVariants=variants,
            MetricsConfig={"MetricPublishFrequencyInSeconds": 20},
        )


def test_refuses_a_recommendation_job(sagemaker):
    with refusal("The local cloud has no Inference Recommender"):
        sagemaker.create_inference_recommendations_job(
            JobName="x", JobType="Default", RoleArn=ROLE, InputConfig={"ModelName": "kept"}
        )


def test_refuses_a_variant_in_a_template(model):
    properties = {"ProductionVariants": [variant(ModelName="missing")]}
    config = {"Type": "AWS::SageMaker::EndpointConfig", "Properties": properties}
    status, reason = model.deploy("variant", {"Config": config})
    assert status == "ROLLBACK_COMPLETE"
    assert 'Could not find model "arn:aws:sagemaker:us-east-1:000000000000:model/missing"' in reason
    model.destroy("variant")


def test_refuses_an_endpoint_config_that_is_not_there(sagemaker):
    with refusal(r'Could not find endpoint configuration "arn:.*endpoint-config/missing"'):
        sagemaker.create_endpoint(EndpointName="x", EndpointConfigName="missing")


def test_refuses_a_model_name_that_is_taken(model, sagemaker):
    with pytest.raises(ClientError, match="Cannot create already existing model"):
        sagemaker.create_model(
            ModelName="kept", ExecutionRoleArn=ROLE, PrimaryContainer={"Image": IMAGE}
        )


def test_refuses_a_model_without_role(cloud):
    resources = endpoint_resources("norole", cloud.put_archive("norole/model.tar.gz", "hi"))
    del resources["Model"]["Properties"]["ExecutionRoleArn"]
    status, reason = cloud.deploy("norole", {"Model": resources["Model"]})
    assert status == "ROLLBACK_COMPLETE"
    assert "'executionRoleArn' failed to satisfy constraint: Member must not be null" in reason
    cloud.destroy("norole")


def test_refuses_a_slack_channel_whose_workspace_nobody_can_authorize(cloud):
    properties = {"SlackWorkspaceId": "T0123ABCDEF", "SlackChannelId": "C0123ABCDEF"}
    slack = {"Type": "AWS::Chatbot::SlackChannelConfiguration", "Properties": properties}
    status, reason = cloud.deploy("slack", {"Slack": slack})
    assert status == "ROLLBACK_COMPLETE"
    assert "T0123ABCDEF cannot be authorized" in reason and "Leave alarm_slack out" in reason
    cloud.destroy("slack")


def scaling_resources(low="1", high="4"):
    policy = {
        "PolicyName": "invocations",
        "PolicyType": "TargetTrackingScaling",
        "ScalingTargetId": {"Ref": "Target"},
        "TargetTrackingScalingPolicyConfiguration": {
            "TargetValue": 600,
            "PredefinedMetricSpecification": {
                "PredefinedMetricType": "SageMakerVariantInvocationsPerInstance"
            },
        },
    }
    target = {**TARGET, "MinCapacity": low, "MaxCapacity": high, "RoleARN": ROLE}
    kind = "AWS::ApplicationAutoScaling"
    return {
        "Target": {"Type": f"{kind}::ScalableTarget", "Properties": target},
        "Policy": {"Type": f"{kind}::ScalingPolicy", "Properties": policy},
    }


@pytest.fixture
def scaled_endpoint(cloud):
    cloud.serve("scaled")
    yield
    cloud.destroy("scaled")


def test_scaling_by_template_is_kept_changed_and_gone(cloud, scaled_endpoint):
    scaling = cloud.client("application-autoscaling")
    assert cloud.deploy("scaling", scaling_resources()) == CREATED
    assert cloud.deploy("scaling", scaling_resources(high="6")) == UPDATED
    target = scaling.describe_scalable_targets(ServiceNamespace="sagemaker")["ScalableTargets"][0]
    assert (target["MinCapacity"], target["MaxCapacity"]) == (1, 6)
    policies = scaling.describe_scaling_policies(ServiceNamespace="sagemaker")["ScalingPolicies"]
    assert [policy["PolicyName"] for policy in policies] == ["invocations"]
    cloud.destroy("scaling")
    assert scaling.describe_scalable_targets(ServiceNamespace="sagemaker")["ScalableTargets"] == []


def test_refuses_a_minimum_above_the_maximum(cloud):
    status, reason = cloud.deploy("minmax", scaling_resources(low="5"))
    assert status == "ROLLBACK_COMPLETE"
    assert "Maximum capacity cannot be less than minimum capacity" in reason
    cloud.destroy("minmax")


def test_refuses_a_policy_without_registered_target(cloud):
    with refusal("No scalable target registered", "ObjectNotFoundException"):
        cloud.client("application-autoscaling").put_scaling_policy(
            PolicyName="p", PolicyType="TargetTrackingScaling", **TARGET
        )


def test_alarm_on_metric_math_is_kept(cloud):
    stat = {
        "Metric": {"Namespace": "AWS/SageMaker", "MetricName": "ModelLatency"},
        "Period": 60,
        "Stat": "p99",
    }
    properties = {
        "AlarmName": "slow",
        "Metrics": [
            {"Id": "latency", "MetricStat": stat, "ReturnData": False},
            {"Id": "milliseconds", "Expression": "latency / 1000", "ReturnData": True},
        ],
        "ComparisonOperator": "GreaterThanThreshold",
        "Threshold": 50,
        "EvaluationPeriods": 3,
    }
    alarm = {"Type": "AWS::CloudWatch::Alarm", "Properties": properties}
    assert cloud.deploy("alarm", {"Alarm": alarm}) == CREATED
    alarm = cloud.client("cloudwatch").describe_alarms(AlarmNames=["slow"])["MetricAlarms"][0]
    assert [metric["Id"] for metric in alarm["Metrics"]] == ["latency", "milliseconds"]
    cloud.destroy("alarm")


def test_lists_come_in_pages_and_the_newest_first(model, sagemaker):
    names = [f"paged-{number:02}" for number in range(12)]
    for name in names:
        sagemaker.create_endpoint_config(EndpointConfigName=name, ProductionVariants=[variant()])
    first = sagemaker.list_endpoint_configs(NameContains="paged-")
    assert [item["EndpointConfigName"] for item in first["EndpointConfigs"]] == names[:1:-1]
    pages = sagemaker.get_paginator("list_endpoint_configs").paginate(NameContains="paged-")
    found = [config["EndpointConfigName"] for page in pages for config in page["EndpointConfigs"]]
    assert found == names[::-1]
    with pytest.raises(ClientError, match="Invalid pagination token"):
        sagemaker.list_endpoint_configs(NextToken="elsewhere")
    for name in names:
        sagemaker.delete_endpoint_config(EndpointConfigName=name)


def tags(sagemaker, arn):
    return {tag["Key"]: tag["Value"] for tag in sagemaker.list_tags(ResourceArn=arn)["Tags"]}


def test_tags_are_kept_changed_and_gone_with_their_resource(model, sagemaker):
    given = [{"Key": "team", "Value": "search"}, {"Key": "cost", "Value": ""}]
    arn = sagemaker.create_endpoint_config(
        EndpointConfigName="tagged", ProductionVariants=[variant()], Tags=given
    )["EndpointConfigArn"]
    assert tags(sagemaker, arn) == {"team": "search", "cost": ""}
    assert "Tags" not in sagemaker.describe_endpoint_config(EndpointConfigName="tagged")
    sagemaker.add_tags(
        ResourceArn=arn, Tags=[{"Key": "team", "Value": "ranking"}, {"Key": "stage", "Value": "x"}]
    )
    sagemaker.delete_tags(ResourceArn=arn, TagKeys=["cost"])
    assert tags(sagemaker, arn) == {"team": "ranking", "stage": "x"}
    with pytest.raises(ClientError, match="A resource can have at most 50 tags"):
        sagemaker.add_tags(
            ResourceArn=arn, Tags=[{"Key": f"k{number}", "Value": "v"} for number in range(49)]
        )
    sagemaker.delete_endpoint_config(EndpointConfigName="tagged")
    with pytest.raises(ClientError, match="Could not find resource"):
        sagemaker.list_tags(ResourceArn=arn)
    sagemaker.create_endpoint_config(EndpointConfigName="tagged", ProductionVariants=[variant()])
    assert tags(sagemaker, arn) == {}
    sagemaker.delete_endpoint_config(EndpointConfigName="tagged")


def test_a_template_s_tags_are_the_resource_s(model, sagemaker):
    def config(*given):
        properties = {
            "EndpointConfigName": "tagged-too",
            "ProductionVariants": [variant()],
            "Tags": list(given),
        }
        return {"Config": {"Type": "AWS::SageMaker::EndpointConfig", "Properties": properties}}

    assert model.deploy("tagged-too", config({"Key": "a", "Value": "1"}))[0] == "CREATE_COMPLETE"
    arn = sagemaker.describe_endpoint_config(EndpointConfigName="tagged-too")["EndpointConfigArn"]
    assert tags(sagemaker, arn) == {"a": "1"}
    assert model.deploy("tagged-too", config({"Key": "b", "Value": "2"}))[0] == "UPDATE_COMPLETE"
    assert tags(sagemaker, arn) == {"b": "2"}
    model.destroy("tagged-too")


def test_refuses_two_tags_of_one_key(model, sagemaker):
    with refusal("tag keys must be unique: a"):
        sagemaker.create_endpoint_config(
            EndpointConfigName="untagged",
            ProductionVariants=[variant()],
            Tags=[{"Key": "a", "Value": value} for value in "12"],
        )


@pytest.mark.parametrize(
    ("call", "request_", "code", "message"),
    [
        (
            "put_scaling_policy",
            {"PolicyType": "TargetTrackingScaling"},
            "ValidationException",
            "'policyName' failed to satisfy",
        ),
        (
            "register_scalable_target",
            {"MinCapacity": 1.5},
            "SerializationException",
            "1.5 can not be converted to an Integer",
        ),
        (
            "describe_scaling_policies",
            {"MaxResults": "x"},
            "SerializationException",
            "'x' can not be converted to a Number",
        ),
    ],
)
def test_refuses_a_scaling_request_outside_the_api_model(cloud, call, request_, code, message):
    with refusal(message, code):
        getattr(cloud.client("application-autoscaling"), call)(**TARGET, **request_)
