import pytest

from local_cloud.application_autoscaling.records import CONFIGURATIONS, STEP, TRACKING, Key, Policy
from local_cloud.application_autoscaling.requests import (
    DIMENSION,
    check_bounds,
    check_policy,
    key_of,
    matching_records,
)
from local_cloud.protocol.constraints import SCALING, checked_request
from local_cloud.protocol.errors import AwsError

pytestmark = pytest.mark.unit
KEY = Key("sagemaker", "endpoint/e/variant/v", DIMENSION)
PREDEFINED = {
    "PredefinedMetricSpecification": {
        "PredefinedMetricType": "SageMakerVariantInvocationsPerInstance"
    }
}
CUSTOM = {
    "CustomizedMetricSpecification": {
        "MetricName": "CPUUtilization",
        "Namespace": "n",
        "Statistic": "Average",
    }
}
STEPS = {
    "AdjustmentType": "ChangeInCapacity",
    "StepAdjustments": [{"MetricIntervalLowerBound": 0, "ScalingAdjustment": 1}],
}


def policy(configuration):
    return Policy(key=KEY, name="other", arn="a", configuration=configuration)


def check(kind, configuration, *others):
    """Check a policy as PutScalingPolicy does: first by the API model."""
    given = {} if configuration is None else {CONFIGURATIONS[kind]: configuration}
    request = checked_request(
        "PutScalingPolicy", {**KEY.as_description(), "PolicyName": "p", **given}, SCALING
    )
    check_policy(request, kind, request.get(CONFIGURATIONS[kind]), others)
    return request


@pytest.mark.parametrize(
    "change",
    [
        {"ServiceNamespace": "ecs"},
        {"ResourceId": "endpoint/e"},
        {"ScalableDimension": "ecs:service:DesiredCount"},
    ],
)
def test_refuses_what_is_no_variant(change):
    with pytest.raises(
        AwsError, match="Unsupported service namespace, resource type or scalable dimension"
    ):
        key_of({**KEY.as_description(), **change})


@pytest.mark.parametrize(
    ("low", "high", "message"),
    [
        (None, 4, "Minimum capacity must be specified"),
        (1, None, "Maximum capacity must be specified"),
        (-1, 4, "Minimum capacity cannot be less than 0"),
        (5, 4, "Maximum capacity cannot be less than minimum capacity"),
    ],
)
def test_refuses_bounds(low, high, message):
    with pytest.raises(AwsError, match=message):
        check_bounds(low, high)


def predefined(name):
    return {"PredefinedMetricSpecification": {"PredefinedMetricType": name}}


@pytest.mark.parametrize(
    ("configuration", "message"),
    [
        (None, "TargetTrackingScalingPolicyConfiguration must be specified"),
        ({"TargetValue": None}, "Configuration.targetValue' failed .*: Member must not be null"),
        ({"TargetValue": 0}, "TargetValue must be greater than zero"),
        ({**CUSTOM}, "Exactly one of .* must be specified, found both"),
        (
            {"PredefinedMetricSpecification": None},
            "Exactly one of .* must be specified, found neither",
        ),
        (
            predefined("Invocations"),
            "Value 'Invocations' at '.*predefinedMetricType' failed to satisfy constraint: "
            "Member must satisfy enum value set",
        ),
        (
            predefined("ECSServiceAverageCPUUtilization"),
            "Scalable dimension sagemaker:variant:DesiredInstanceCount only supports the "
            "following predefined metric types",
        ),
        ({"TargetValue": 9}, "Only one TargetTrackingScaling policy for a given metric spec"),
    ],
)
def test_refuses_a_tracking_policy(configuration, message):
    tracked = {**PREDEFINED, "TargetValue": 5}
    with pytest.raises(AwsError, match=message):
        check(TRACKING, configuration and {**tracked, **configuration}, policy(tracked))


@pytest.mark.parametrize(
    ("kind", "configuration", "message"),
    [
        (STEP, {**STEPS, "AdjustmentType": "ExactCapacity"}, "scales by AdjustmentType Change"),
        (STEP, {**STEPS, "AdjustmentType": None}, "ChangeInCapacity, not by None"),
        (
            TRACKING,
            {"TargetValue": 5, "CustomizedMetricSpecification": {"Metrics": [{"Id": "a"}]}},
            "The local cloud tracks one metric, not metric math.",
        ),
    ],
)
def test_refuses_what_nothing_here_runs(kind, configuration, message):
    with pytest.raises(AwsError, match=message):
        check(kind, configuration)


def test_takes_what_aws_takes():
    check(TRACKING, {**CUSTOM, "TargetValue": 5}, policy({**PREDEFINED, "TargetValue": 5}))
    check(STEP, STEPS)
    assert check_bounds(0, 0) == (0, 0)


def test_text_of_templates_becomes_numbers():
    tracking = {"TargetValue": "600", "ScaleInCooldown": "60", "DisableScaleIn": "true"}
    typed = check(TRACKING, {**PREDEFINED, **tracking})[CONFIGURATIONS[TRACKING]]
    assert typed == {
        **PREDEFINED, "TargetValue": 600.0, "ScaleInCooldown": 60, "DisableScaleIn": True
    }  # fmt: skip
    steps = check(STEP, {**STEPS, "StepAdjustments": [{"ScalingAdjustment": "-1"}]})
    assert steps[CONFIGURATIONS[STEP]]["StepAdjustments"] == [{"ScalingAdjustment": -1}]


def page_of(records, **request):
    return matching_records({"ServiceNamespace": "sagemaker", **request}, "Policies", records)


def test_pages_cover_everything_once():
    records = [{**KEY.as_description(), "PolicyName": f"p{number}"} for number in range(5)]
    first = page_of(records, MaxResults=3)
    second = page_of(records, MaxResults=3, NextToken=first["NextToken"])
    assert first["Policies"] + second["Policies"] == records
    assert "NextToken" not in second
    assert page_of(records, PolicyNames=["p3"])["Policies"] == [records[3]]
    assert page_of(records, ServiceNamespace="ecs")["Policies"] == []
    with pytest.raises(AwsError, match="'serviceNamespace' failed to satisfy constraint"):
        checked_request("DescribeScalingPolicies", {}, SCALING)
