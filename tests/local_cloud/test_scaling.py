"""Application Auto Scaling under load; a minute lasts a second here."""

import pytest

from tests.local_cloud.account import CREATED, UPDATED, until
from tests.local_cloud.paced import paced_load
from tests.local_cloud.scaled_endpoint import Scaled

pytestmark = pytest.mark.local_cloud
RATE, TARGET = 10, 240
"""Requests a second that need three instances of so many requests a minute, and little of the
machine.
"""
CPU_TARGET, COMPUTE_SECONDS = 10, 0.03
"""Percent of one core, and what a request takes of it: RATE requests a second take 30 %."""


@pytest.fixture
def endpoint(cloud, request):
    test = request.node.originalname.removeprefix("test_").replace("_", "-")
    name = f"scaled-{test[:40].strip('-')}"
    cloud.serve(name)
    yield Scaled(cloud, name)
    cloud.destroy(name)


def test_load_makes_instances_more_and_its_end_fewer(endpoint):
    endpoint.register()
    endpoint.track(TARGET)
    with paced_load(lambda: endpoint.cloud.invoke(endpoint.name), RATE) as answers:
        endpoint.comes_to(3)
        count = len(answers)
        until(lambda: len({answer["instance"] for answer in answers[count:]}) == 3)
    grown = endpoint.activities()[-1]
    high = endpoint.alarms()["AlarmHigh"]["AlarmName"]
    assert grown["Cause"] == f"monitor alarm {high} in state ALARM triggered policy invocations"
    assert grown["Description"].startswith("Setting desired instance count to ")
    endpoint.comes_to(1)
    shrunk = endpoint.last_activity()
    assert (shrunk["Description"], shrunk["StatusCode"], shrunk["StatusMessage"]) == (
        "Setting desired instance count to 1.",
        "Successful",
        "Successfully set desired instance count to 1. Change successfully fulfilled by sagemaker.",
    )
    assert "-AlarmLow-" in shrunk["Cause"]
    assert shrunk["EndTime"] >= shrunk["StartTime"]


def test_cpu_load_makes_instances_more(endpoint):
    endpoint.register(high=2)
    dimensions = [
        {"Name": "EndpointName", "Value": endpoint.name},
        {"Name": "VariantName", "Value": "AllTraffic"},
    ]
    metric = {
        "Namespace": "/aws/sagemaker/Endpoints",
        "MetricName": "CPUUtilization",
        "Statistic": "Average",
        "Dimensions": dimensions,
    }
    endpoint.track(CPU_TARGET, {"CustomizedMetricSpecification": metric}, "cpu")
    body = f"compute {COMPUTE_SECONDS}".encode()
    with paced_load(lambda: endpoint.cloud.invoke(endpoint.name, body), RATE):
        endpoint.comes_to(2)
    assert endpoint.activities()[-1]["Cause"].endswith("in state ALARM triggered policy cpu")


def test_a_step_policy_follows_an_alarm_of_one_s_own(endpoint):
    endpoint.register()
    steps = {
        "AdjustmentType": "ChangeInCapacity",
        "Cooldown": 60,
        "StepAdjustments": [{"MetricIntervalLowerBound": 0, "ScalingAdjustment": 2}],
    }
    arn = endpoint.client.put_scaling_policy(
        **endpoint.of,
        PolicyName="steps",
        PolicyType="StepScaling",
        StepScalingPolicyConfiguration=steps,
    )["PolicyARN"]
    watch = endpoint.cloud.client("cloudwatch")
    watch.put_metric_alarm(
        AlarmName="steps",
        Namespace="Test",
        MetricName="Backlog",
        Statistic="Average",
        Period=60,
        EvaluationPeriods=1,
        Threshold=1,
        ComparisonOperator="GreaterThanOrEqualToThreshold",
        AlarmActions=[arn],
    )
    watch.put_metric_data(Namespace="Test", MetricData=[{"MetricName": "Backlog", "Value": 5}])
    endpoint.comes_to(3)
    cause = endpoint.activities()[0]["Cause"]
    assert cause == "monitor alarm steps in state ALARM triggered policy steps"


def test_bounds_hold_from_the_moment_they_are_registered(endpoint):
    endpoint.register(low=2)
    endpoint.comes_to(2)
    assert endpoint.last_activity()["Cause"] == "minimum capacity was set to 2"
    endpoint.client.register_scalable_target(**endpoint.of, MinCapacity=1, MaxCapacity=1)
    endpoint.comes_to(1)
    assert endpoint.last_activity()["Cause"] == "maximum capacity was set to 1"


def test_a_template_s_schedule_comes_and_goes_with_it(endpoint):
    def target(**more):
        properties = {**endpoint.of, "MinCapacity": "1", "MaxCapacity": "3", **more}
        kind = "AWS::ApplicationAutoScaling::ScalableTarget"
        return {"Target": {"Type": kind, "Properties": properties}}

    floor = {
        "ScheduledActionName": "floor-1",
        "Schedule": "cron(0 6 ? * MON-FRI *)",
        "Timezone": "Europe/Berlin",
    }
    actions = [{**floor, "ScalableTargetAction": {"MinCapacity": "2"}}]
    stack = f"{endpoint.name}-target"
    assert endpoint.cloud.deploy(stack, target(ScheduledActions=actions)) == CREATED
    (found,) = endpoint.client.describe_scheduled_actions(**endpoint.of)["ScheduledActions"]
    actual = (found["Timezone"], found["ScalableTargetAction"])
    assert actual == ("Europe/Berlin", {"MinCapacity": 2})
    assert endpoint.cloud.deploy(stack, target()) == UPDATED
    assert endpoint.client.describe_scheduled_actions(**endpoint.of)["ScheduledActions"] == []
    endpoint.cloud.destroy(stack)


def test_a_target_goes_with_its_endpoint(cloud):
    cloud.serve("scaled-leaving")
    leaving = Scaled(cloud, "scaled-leaving")
    leaving.register()
    leaving.track(600)
    cloud.destroy("scaled-leaving")
    named = {"ServiceNamespace": "sagemaker", "ResourceIds": [leaving.of["ResourceId"]]}
    until(lambda: not leaving.client.describe_scalable_targets(**named)["ScalableTargets"])
    assert leaving.alarms() == {}
