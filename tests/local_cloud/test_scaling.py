"""Application Auto Scaling under load; a minute lasts a second here."""

import pytest

from tests.local_cloud.account import CREATED, UPDATED, refused, until
from tests.local_cloud.paced import paced_load
from tests.local_cloud.scaled_endpoint import Scaled

pytestmark = pytest.mark.local_cloud
RATE, TARGET = 10, 240
"""Requests a second that need three instances of so many requests a minute, and little of the
machine.
"""


@pytest.fixture
def scaled(cloud, request):
    test = request.node.originalname.removeprefix("test_").replace("_", "-")
    name = f"scaled-{test[:40].strip('-')}"
    cloud.serve(name)
    yield Scaled(cloud, name)
    cloud.destroy(name)


def test_load_makes_instances_more_and_its_end_fewer(scaled):
    scaled.register()
    scaled.track(TARGET)
    with paced_load(lambda: scaled.cloud.invoke(scaled.name), RATE) as answers:
        scaled.comes_to(3)
        asked = len(answers)
        until(lambda: len({answer["instance"] for answer in answers[asked:]}) == 3)
    grown = scaled.activities()[-1]
    high = scaled.alarms()["AlarmHigh"]["AlarmName"]
    assert grown["Cause"] == f"monitor alarm {high} in state ALARM triggered policy invocations"
    assert grown["Description"].startswith("Setting desired instance count to ")
    scaled.comes_to(1)
    shrunk = scaled.ended()
    assert (shrunk["Description"], shrunk["StatusCode"], shrunk["StatusMessage"]) == (
        "Setting desired instance count to 1.",
        "Successful",
        "Successfully set desired instance count to 1. Change successfully fulfilled by sagemaker.",
    )
    assert "-AlarmLow-" in shrunk["Cause"]
    assert shrunk["EndTime"] >= shrunk["StartTime"]


def test_a_policy_makes_the_alarms_that_aws_makes(scaled):
    scaled.register()
    made = scaled.track(600)["Alarms"]
    high, low = scaled.alarms()["AlarmHigh"], scaled.alarms()["AlarmLow"]
    assert {item["AlarmName"] for item in made} == {high["AlarmName"], low["AlarmName"]}
    actual = (high["EvaluationPeriods"], high["Period"], high["Threshold"], high["Statistic"])
    assert actual == (3, 60, 600, "Sum")
    actual = (low["EvaluationPeriods"], low["Threshold"], low["ComparisonOperator"])
    assert actual == (15, 540, "LessThanThreshold")
    assert high["AlarmDescription"].startswith(
        "DO NOT EDIT OR DELETE. For TargetTrackingScaling policy arn:aws:autoscaling:"
    )
    scaled.track(900, DisableScaleIn=True)
    assert set(scaled.alarms()) == {"AlarmHigh"}
    assert scaled.alarms()["AlarmHigh"]["Threshold"] == 900
    assert scaled.alarms()["AlarmHigh"]["AlarmName"] != high["AlarmName"]
    policy = scaled.client.describe_scaling_policies(**scaled.of)["ScalingPolicies"][0]
    (alarm,) = policy["Alarms"]
    assert alarm["AlarmName"] == scaled.alarms()["AlarmHigh"]["AlarmName"]
    scaled.client.delete_scaling_policy(**scaled.of, PolicyName="invocations")
    assert scaled.alarms() == {}


def test_a_customized_metric_is_tracked(scaled):
    scaled.register(high=2)
    metric = {"Namespace": "Test", "MetricName": "GPUUtilization", "Statistic": "Average"}
    scaled.track(50, {"CustomizedMetricSpecification": metric}, "gpu")

    def fed():
        data = [{"MetricName": "GPUUtilization", "Value": 90}]
        scaled.cloud.client("cloudwatch").put_metric_data(Namespace="Test", MetricData=data)
        return scaled.count() == 2

    until(fed)
    assert scaled.activities()[0]["Cause"].endswith("in state ALARM triggered policy gpu")


def test_a_step_policy_follows_an_alarm_of_one_s_own(scaled):
    scaled.register()
    steps = {
        "AdjustmentType": "ChangeInCapacity",
        "Cooldown": 60,
        "StepAdjustments": [{"MetricIntervalLowerBound": 0, "ScalingAdjustment": 2}],
    }
    arn = scaled.client.put_scaling_policy(
        **scaled.of,
        PolicyName="steps",
        PolicyType="StepScaling",
        StepScalingPolicyConfiguration=steps,
    )["PolicyARN"]
    watch = scaled.cloud.client("cloudwatch")
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
    scaled.comes_to(3)
    cause = scaled.activities()[0]["Cause"]
    assert cause == "monitor alarm steps in state ALARM triggered policy steps"


def test_bounds_hold_from_the_moment_they_are_registered(scaled):
    scaled.register(low=2)
    scaled.comes_to(2)
    assert scaled.ended()["Cause"] == "minimum capacity was set to 2"
    scaled.client.register_scalable_target(**scaled.of, MinCapacity=1, MaxCapacity=1)
    scaled.comes_to(1)
    assert scaled.ended()["Cause"] == "maximum capacity was set to 1"


def test_a_scheduled_action_sets_the_floor(scaled):
    scaled.register()
    scaled.client.put_scheduled_action(
        **scaled.of,
        ScheduledActionName="morning",
        Schedule="rate(2 minutes)",
        ScalableTargetAction={"MinCapacity": 2},
    )
    found = scaled.client.describe_scheduled_actions(ServiceNamespace="sagemaker")
    (action,) = found["ScheduledActions"]
    actual = (action["Schedule"], action["ScalableTargetAction"])
    assert actual == ("rate(2 minutes)", {"MinCapacity": 2})
    scaled.comes_to(2)
    causes = [activity["Cause"] for activity in scaled.activities()]
    assert "scheduled action name morning was triggered" in causes
    assert "minimum capacity was set to 2" in causes
    scaled.client.delete_scheduled_action(**scaled.of, ScheduledActionName="morning")
    with refused("No scheduled action found", "ObjectNotFoundException"):
        scaled.client.delete_scheduled_action(**scaled.of, ScheduledActionName="morning")


def test_suspended_scaling_rests(scaled):
    scaled.register(SuspendedState={"DynamicScalingOutSuspended": True})
    scaled.track(TARGET)
    with paced_load(lambda: scaled.cloud.invoke(scaled.name), RATE):
        until(lambda: scaled.alarms()["AlarmHigh"]["StateValue"] == "ALARM")
        assert scaled.count() == 1
        scaled.register(SuspendedState={"DynamicScalingOutSuspended": False})
        scaled.comes_to(3)


def test_at_the_maximum_it_says_why_it_did_not_scale(scaled):
    scaled.register(high=1)
    scaled.track(TARGET)
    with paced_load(lambda: scaled.cloud.invoke(scaled.name), RATE):
        found = until(lambda: scaled.activities(IncludeNotScaledActivities=True))
    assert found[0]["NotScaledReasons"] == [{"Code": "AlreadyAtMaxCapacity", "MaxCapacity": 1}]
    assert scaled.activities() == []


def test_a_template_s_schedule_comes_and_goes_with_it(scaled):
    def target(**more):
        properties = {**scaled.of, "MinCapacity": "1", "MaxCapacity": "3", **more}
        kind = "AWS::ApplicationAutoScaling::ScalableTarget"
        return {"Target": {"Type": kind, "Properties": properties}}

    floor = {
        "ScheduledActionName": "floor-1",
        "Schedule": "cron(0 6 ? * MON-FRI *)",
        "Timezone": "Europe/Berlin",
    }
    actions = [{**floor, "ScalableTargetAction": {"MinCapacity": "2"}}]
    stack = f"{scaled.name}-target"
    assert scaled.cloud.deploy(stack, target(ScheduledActions=actions)) == CREATED
    (found,) = scaled.client.describe_scheduled_actions(**scaled.of)["ScheduledActions"]
    actual = (found["Timezone"], found["ScalableTargetAction"])
    assert actual == ("Europe/Berlin", {"MinCapacity": 2})
    assert scaled.cloud.deploy(stack, target()) == UPDATED
    assert scaled.client.describe_scheduled_actions(**scaled.of)["ScheduledActions"] == []
    scaled.cloud.destroy(stack)


def test_deregistering_removes_policies_and_alarms(scaled):
    scaled.register()
    scaled.track(600)
    scaled.client.deregister_scalable_target(**scaled.of)
    assert scaled.client.describe_scaling_policies(**scaled.of)["ScalingPolicies"] == []
    assert scaled.alarms() == {}
    with refused(
        "No scalable target registered for service namespace: sagemaker", "ObjectNotFoundException"
    ):
        scaled.client.deregister_scalable_target(**scaled.of)


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
    ("change", "said"),
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
def test_refuses_a_target(scaled, change, said):
    request = {**scaled.of, "MinCapacity": 1, "MaxCapacity": 3, **change}
    with refused(said):
        scaled.client.register_scalable_target(
            **{field: value for field, value in request.items() if value is not None}
        )


def test_refuses_a_second_policy_on_one_metric(scaled):
    scaled.register()
    scaled.track(600)
    with refused("Only one TargetTrackingScaling policy for a given metric specification"):
        scaled.track(700, name="again")
