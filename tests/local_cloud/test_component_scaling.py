"""Copies that scale: with concurrency, to zero without requests, and from zero when one comes."""

import pytest
from botocore.exceptions import ClientError

from tests.local_cloud.account import refusal, until
from tests.local_cloud.hosted_component import MANAGED, Hosted, Streams

pytestmark = pytest.mark.local_cloud
CONCURRENCY = "SageMakerInferenceComponentConcurrentRequestsPerCopyHighResolution"


@pytest.fixture
def hosted(cloud):
    made = Hosted(cloud, "scaled-component").deploy(managed=MANAGED)
    yield made
    cloud.destroy(made.name)


def target_of(hosted):
    return {
        "ServiceNamespace": "sagemaker",
        "ResourceId": f"inference-component/{hosted.name}",
        "ScalableDimension": "sagemaker:inference-component:DesiredCopyCount",
    }


def register(hosted, low, high):
    """Registers copies as a target that concurrency scales in and out and a request from zero."""
    scaling, target = hosted.cloud.client("application-autoscaling"), target_of(hosted)
    scaling.register_scalable_target(**target, MinCapacity=low, MaxCapacity=high)
    scaling.put_scaling_policy(
        **target,
        PolicyName="concurrency",
        PolicyType="TargetTrackingScaling",
        TargetTrackingScalingPolicyConfiguration={
            "TargetValue": 2,
            "PredefinedMetricSpecification": {"PredefinedMetricType": CONCURRENCY},
            "ScaleOutCooldown": 0,
            "ScaleInCooldown": 0,
        },
    )
    policy = scaling.put_scaling_policy(
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


def test_copies_scale_out_to_zero_and_from_zero(cloud, hosted):
    register(hosted, 0, 3)
    streams = Streams(hosted, 6, events=100, seconds=0.1)
    hosted.comes_to(3)
    assert not streams.join().faults
    hosted.comes_to(0)
    until(
        lambda: (
            hosted.cloud.client("sagemaker").describe_endpoint(EndpointName=hosted.name)[
                "ProductionVariants"
            ][0]["CurrentInstanceCount"]
            == 0
        )
    )
    with refusal("Inference Component has no capacity to process this request", "ValidationError"):
        hosted.invoke()
    assert until(lambda: answer_of(hosted))["greeting"] == "hi"
    activities = cloud.client("application-autoscaling").describe_scaling_activities(
        ServiceNamespace="sagemaker", ResourceId=f"inference-component/{hosted.name}"
    )["ScalingActivities"]
    descriptions = [activity["Description"] for activity in activities]
    assert "Setting desired copy count to 1." in descriptions
    assert "Setting desired copy count to 0." in descriptions
