"""Application Auto Scaling under load; a minute lasts a second here."""

import pytest

from tests.local_cloud.account import CREATED, UPDATED, refusal, until
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


def test_a_policy_makes_the_alarms_that_aws_makes(endpoint):
    endpoint.register()
    made = endpoint.track(600)["Alarms"]
    high, low = endpoint.alarms()["AlarmHigh"], endpoint.alarms()["AlarmLow"]
    assert {item["AlarmName"] for item in made} == {high["AlarmName"], low["AlarmName"]}
    actual = (high["EvaluationPeriods"], high["Period"], high["Threshold"], high["Statistic"])
    assert actual == (3, 60, 600, "Sum")
    actual = (low["EvaluationPeriods"], low["Threshold"], low["ComparisonOperator"])
    assert actual == (15, 540, "LessThanThreshold")
    assert high["AlarmDescription"].startswith(
        "DO NOT EDIT OR DELETE. For TargetTrackingScaling policy arn:aws:autoscaling:"
    )
    endpoint.track(900, DisableScaleIn=True)
    assert set(endpoint.alarms()) == {"AlarmHigh"}
    assert endpoint.alarms()["AlarmHigh"]["Threshold"] == 900
    assert endpoint.alarms()["AlarmHigh"]["AlarmName"] != high["AlarmName"]
    policy = endpoint.client.describe_scaling_policies(**endpoint.of)["ScalingPolicies"][0]
    (alarm,) = policy["Alarms"]
    assert alarm["AlarmName"] == endpoint.alarms()["AlarmHigh"]["AlarmName"]
    endpoint.client.delete_scaling_policy(**endpoint.of, PolicyName="invocations")
    assert endpoint.alarms() == {}


def test_a_customized_metric_is_tracked(endpoint):
    endpoint.register(high=2)
    metric = {"Namespace": "Test", "MetricName": "GPUUtilization", "Statistic": "Average"}
    endpoint.track(50, {"CustomizedMetricSpecification": metric}, "gpu")

    def fed():
        data = [{"MetricName": "GPUUtilization", "Value": 90}]
        endpoint.cloud.client("cloudwatch").put_metric_data(Namespace="Test", MetricData=data)
        return endpoint.count() == 2

    until(fed)
    assert endpoint.activities()[0]["Cause"].endswith("in state ALARM triggered policy gpu")


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


def test_a_scheduled_action_sets_the_floor(endpoint):
    endpoint.register()
    endpoint.client.put_scheduled_action(
        **endpoint.of,
        ScheduledActionName="morning",
        Schedule="rate(2 minutes)",
        ScalableTargetAction={"MinCapacity": 2},
    )
    found = endpoint.client.describe_scheduled_actions(ServiceNamespace="sagemaker")
    (action,) = found["ScheduledActions"]
    actual = (action["Schedule"], action["ScalableTargetAction"])
    assert actual == ("rate(2 minutes)", {"MinCapacity": 2})
    endpoint.comes_to(2)
    causes = [activity["Cause"] for activity in endpoint.activities()]
    assert "scheduled action name morning was triggered" in causes
    assert "minimum capacity was set to 2" in causes
    endpoint.client.delete_scheduled_action(**endpoint.of, ScheduledActionName="morning")
    with refusal("No scheduled action found", "ObjectNotFoundException"):
        endpoint.client.delete_scheduled_action(**endpoint.of, ScheduledActionName="morning")


def test_suspended_scaling_rests(endpoint):
    endpoint.register(SuspendedState={"DynamicScalingOutSuspended": True})
    endpoint.track(TARGET)
    with paced_load(lambda: endpoint.cloud.invoke(endpoint.name), RATE):
        until(lambda: endpoint.alarms()["AlarmHigh"]["StateValue"] == "ALARM")
        assert endpoint.count() == 1
        endpoint.register(SuspendedState={"DynamicScalingOutSuspended": False})
        endpoint.comes_to(3)


def test_at_the_maximum_it_says_why_it_did_not_scale(endpoint):
    endpoint.register(high=1)
    endpoint.track(TARGET)
    with paced_load(lambda: endpoint.cloud.invoke(endpoint.name), RATE):
        found = until(lambda: endpoint.activities(IncludeNotScaledActivities=True))
    assert found[0]["NotScaledReasons"] == [{"Code": "AlreadyAtMaxCapacity", "MaxCapacity": 1}]
    assert endpoint.activities() == []


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


def test_deregistering_removes_policies_and_alarms(endpoint):
    endpoint.register()
    endpoint.track(600)
    endpoint.client.deregister_scalable_target(**endpoint.of)
    assert endpoint.client.describe_scaling_policies(**endpoint.of)["ScalingPolicies"] == []
    assert endpoint.alarms() == {}
    with refusal(
        "No scalable target registered for service namespace: sagemaker", "ObjectNotFoundException"
    ):
        endpoint.client.deregister_scalable_target(**endpoint.of)


def test_a_target_goes_with_its_endpoint(cloud):
    cloud.serve("scaled-leaving")
    leaving = Scaled(cloud, "scaled-leaving")
    leaving.register()
    leaving.track(600)
    cloud.destroy("scaled-leaving")
    named = {"ServiceNamespace": "sagemaker", "ResourceIds": [leaving.of["ResourceId"]]}
    until(lambda: not leaving.client.describe_scalable_targets(**named)["ScalableTargets"])
    assert leaving.alarms() == {}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"ResourceId": "endpoint/nowhere/variant/AllTraffic"},
            r'Could not find endpoint "arn:aws:sagemaker:.*endpoint/nowhere"',
        ),
        (
            {"ResourceId": "endpoint/scaled-refuses-a-target/variant/Blue"},
            r'The variant name\(s\) "Blue" is/are not present within endpoint configuration',
        ),
        ({"MaxCapacity": None}, "Maximum capacity must be specified"),
    ],
)
def test_refuses_a_target(endpoint, change, message):
    request = {**endpoint.of, "MinCapacity": 1, "MaxCapacity": 3, **change}
    with refusal(message):
        endpoint.client.register_scalable_target(
            **{field: value for field, value in request.items() if value is not None}
        )


def test_refuses_a_second_policy_on_one_metric(endpoint):
    endpoint.register()
    endpoint.track(600)
    with refusal("Only one TargetTrackingScaling policy for a given metric specification"):
        endpoint.track(700, name="again")
