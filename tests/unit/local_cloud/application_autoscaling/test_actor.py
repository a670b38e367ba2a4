"""What alarms bring about, on endpoints that only remember what was asked of them."""

from dataclasses import dataclass, field

import pytest

from local_cloud.application_autoscaling.actor import Actor, ScaledResources
from local_cloud.application_autoscaling.records import (
    STEP,
    Change,
    Key,
    Policy,
    Target,
)
from local_cloud.application_autoscaling.requests import DIMENSION
from local_cloud.application_autoscaling.tracking import Breach
from local_cloud.protocol.errors import AwsError

pytestmark = pytest.mark.unit
KEY = Key("sagemaker", "endpoint/e/variant/v", DIMENSION)
NOW = 1_800_000_000.0


@dataclass
class Endpoint:
    status: str = "InService"
    failure_reason: str | None = None
    config_name: str = "e-1"


@dataclass
class Endpoints:
    current: int = 1
    desired: int = 1
    refuses: bool = False
    endpoint: Endpoint = field(default_factory=Endpoint)

    def endpoint_named(self, name):
        return self.endpoint

    def instances(self, name):
        return {"v": (self.current, self.desired)}

    def scale(self, endpoint, variant, desired):
        if self.refuses:
            raise AwsError("ValidationException", 'Cannot update in-progress endpoint "arn".')
        self.desired, self.endpoint.status = desired, "Updating"

    def arrive(self, failure=None):
        self.endpoint.status, self.endpoint.failure_reason = "InService", failure
        self.current = self.current if failure else self.desired


def tracking(name="p", target=600.0, **more):
    configuration = {"TargetValue": target, "ScaleOutCooldown": 60, "ScaleInCooldown": 300, **more}
    alarms = {f"TargetTracking-{name}-Alarm{side}-1": "arn" for side in ("High", "Low")}
    return Policy(key=KEY, name=name, arn=f"arn:{name}", configuration=configuration, alarms=alarms)


def breach(values, name="p", side="High", threshold=600.0):
    return Breach(
        policy_arn=f"arn:{name}",
        alarm=f"TargetTracking-{name}-Alarm{side}-1",
        values=values,
        threshold=threshold,
        below=side == "Low",
    )


def high(*values):
    return breach(values)


def low(*values):
    return breach(values, side="Low", threshold=540.0)


class Scene:
    """One target between 1 and 4 instances."""

    def __init__(self, current=1, in_alarm=(), **endpoints):
        self.endpoints = Endpoints(current=current, desired=current, **endpoints)
        self.actor = Actor(
            resources=ScaledResources(endpoints=self.endpoints, components=None),
            alarm_states=lambda names: dict.fromkeys(set(names) & set(in_alarm), "ALARM"),
            stretch=1.0,
        )
        self.target = Target(key=KEY, arn="t", role="r", low=1, high=4)
        self.kept = []

    def act(self, *breaches, policies=None, now=NOW):
        self.actor.act(
            self.target, [tracking()] if policies is None else policies, breaches, self.kept, now
        )
        return self.endpoints.desired

    def follow(self):
        self.actor.follow({KEY: self.target}, self.kept)


def test_scales_out_to_what_the_newest_datapoint_asks_for():
    scene = Scene()
    assert scene.act(high(700, 800, 1500)) == 3
    (activity,) = scene.kept
    assert activity.as_description() | {"ActivityId": "", "StartTime": 0} == {
        **KEY.as_description(),
        "ActivityId": "",
        "StartTime": 0,
        "Description": "Setting desired instance count to 3.",
        "Cause": "monitor alarm TargetTracking-p-AlarmHigh-1 in state ALARM triggered policy p",
        "StatusCode": "InProgress",
        "StatusMessage": "Successfully set desired instance count to 3. Waiting for change to be "
        "fulfilled by sagemaker.",
    }


def test_an_activity_ends_when_the_instances_are_there_and_begins_the_cool_down():
    scene = Scene()
    scene.act(high(1500))
    scene.follow()
    assert scene.kept[0].status == "InProgress"
    scene.endpoints.arrive()
    scene.follow()
    assert scene.kept[0].status == "Successful"
    assert scene.kept[0].message == (
        "Successfully set desired instance count to 3. Change successfully fulfilled by sagemaker."
    )
    assert (scene.target.last.before, scene.target.last.after) == (1, 3)


def test_an_activity_fails_with_the_endpoint_s_reason():
    scene = Scene()
    scene.act(high(1500))
    scene.endpoints.arrive(failure="no capacity")
    scene.follow()
    actual = (scene.kept[0].status, scene.kept[0].message)
    assert actual == ("Failed", "Failed to set desired instance count to 3. Reason: no capacity")
    assert scene.target.last is None


def test_never_beyond_the_maximum():
    scene = Scene(current=3)
    assert scene.act(high(6000)) == 4
    scene.endpoints.arrive()
    assert scene.act(high(6000)) == 4
    assert len(scene.kept) == 1


def test_scales_in_to_what_the_highest_datapoint_allows():
    assert Scene(current=4).act(low(*[10] * 14, 290)) == 2
    assert Scene(current=4).act(low(*[0] * 15)) == 1


def test_at_the_minimum_nothing_happens():
    scene = Scene()
    assert scene.act(low(*[0] * 15)) == 1
    assert scene.kept == []


def test_the_largest_of_several_policies_wins():
    policies = [tracking(), tracking("gpu", target=60.0)]
    gpu = breach((200.0,), "gpu", threshold=60.0)
    scene = Scene()
    assert scene.act(high(700), gpu, policies=policies) == 4
    assert scene.kept[0].cause.endswith("triggered policy gpu")


def test_scales_in_only_when_every_tracking_policy_is_ready():
    policies = [tracking(), tracking("gpu")]
    assert Scene(current=4).act(low(10), policies=policies) == 4
    ready = Scene(current=4, in_alarm=["TargetTracking-gpu-AlarmLow-1"])
    assert ready.act(low(10), policies=policies) == 1
    policies = [tracking(), tracking("gpu", DisableScaleIn=True)]
    assert Scene(current=4).act(low(10), policies=policies) == 1


def test_a_policy_that_may_not_scale_in_does_not():
    assert Scene(current=4).act(low(10), policies=[tracking(DisableScaleIn=True)]) == 4


def test_scale_out_within_the_cool_down_adds_only_what_goes_beyond():
    scene = Scene(current=2)
    scene.target.last = Change(before=1, after=2, at=NOW - 30)
    assert scene.act(high(700)) == 2
    assert scene.act(high(1100)) == 3
    later = Scene(current=2)
    later.target.last = Change(before=1, after=2, at=NOW - 61)
    assert later.act(high(700)) == 3


def test_scale_in_waits_for_its_cool_down_and_never_holds_back_a_scale_out():
    scene = Scene(current=3)
    scene.target.last = Change(before=4, after=3, at=NOW - 299)
    assert scene.act(low(10)) == 3
    assert scene.act(high(700)) == 4


def test_an_update_blocks_scaling():
    scene = Scene(endpoint=Endpoint(status="Updating"))
    assert scene.act(high(1500)) == 1
    assert scene.kept == []


def test_what_sagemaker_refuses_is_a_failed_activity():
    scene = Scene(refuses=True)
    scene.act(high(1500))
    assert scene.kept[0].status == "Failed"
    assert scene.kept[0].message == (
        "Failed to set desired instance count to 3. Reason: Cannot update in-progress endpoint "
        '"arn". '
        "(Service: AmazonSageMaker; Status Code: 400; Error Code: ValidationException)"
    )


@pytest.mark.parametrize(
    ("suspended", "called", "current", "desired"),
    [
        ("DynamicScalingOutSuspended", high(1500), 2, 2),
        ("DynamicScalingOutSuspended", low(10), 2, 1),
        ("DynamicScalingInSuspended", low(10), 2, 2),
        ("DynamicScalingInSuspended", high(700), 2, 3),
    ],
)
def test_suspended_directions_rest(suspended, called, current, desired):
    scene = Scene(current=current)
    scene.target.suspended[suspended] = True
    assert scene.act(called) == desired


def test_a_step_policy_follows_its_own_alarm():
    steps = {
        "AdjustmentType": "ChangeInCapacity",
        "Cooldown": 60,
        "StepAdjustments": [{"MetricIntervalLowerBound": 0, "ScalingAdjustment": 2}],
    }
    policy = Policy(key=KEY, name="steps", kind=STEP, arn="arn:steps", configuration=steps)
    scene = Scene()
    assert scene.act(breach((5.0,), "steps", threshold=1.0), policies=[policy]) == 3
    assert scene.kept[0].cause.endswith("in state ALARM triggered policy steps")


def test_bounds_are_enforced_when_they_are_set():
    scene = Scene()
    scene.target.low = 3
    scene.actor.enforce(scene.target, scene.kept)
    assert scene.endpoints.desired == 3
    assert scene.kept[0].cause == "minimum capacity was set to 3"
