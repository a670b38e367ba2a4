"""What breached alarms bring about, on an endpoint that only remembers what was asked of it."""

from types import SimpleNamespace

import pytest

from local_cloud.application_autoscaling.autoscaler import Autoscaler
from local_cloud.application_autoscaling.records import DIMENSION, STEP, Change, Key, Policy, Target
from local_cloud.application_autoscaling.tracking import Breach
from local_cloud.protocol.errors import AwsError

pytestmark = pytest.mark.unit
KEY = Key("sagemaker", "endpoint/e/variant/v", DIMENSION)
NOW = 1_800_000_000.0
GPU_IS_LOW = "TargetTracking-gpu-AlarmLow-1"
OUT, IN = "DynamicScalingOutSuspended", "DynamicScalingInSuspended"
STEPS = {
    "AdjustmentType": "ChangeInCapacity",
    "Cooldown": 60,
    "StepAdjustments": [{"MetricIntervalLowerBound": 0, "ScalingAdjustment": 2}],
}


def tracking(name="p", target=600.0, **more):
    configuration = {"TargetValue": target, "ScaleOutCooldown": 60, "ScaleInCooldown": 300, **more}
    alarms = {f"TargetTracking-{name}-Alarm{side}-1": "arn" for side in ("High", "Low")}
    return Policy(key=KEY, name=name, arn=f"arn:{name}", configuration=configuration, alarms=alarms)


def high(*values, name="p", threshold=600.0, side="High"):
    return Breach(
        policy_arn=f"arn:{name}",
        alarm=f"TargetTracking-{name}-Alarm{side}-1",
        values=values,
        threshold=threshold,
        below=side == "Low",
    )


def low(*values):
    return high(*values, threshold=540.0, side="Low")


STEPPING = Policy(key=KEY, name="steps", kind=STEP, arn="arn:steps", configuration=STEPS)


class Scene:
    """One target between 1 and 4 instances of an endpoint, which is all of SageMaker there is."""

    def __init__(self, current=1, policies=None, in_alarm=(), status="InService", refuses=False):
        self.current = self.desired = current
        self.refuses, self.endpoints = refuses, self
        self.endpoint = SimpleNamespace(status=status, failure_reason=None, config_name="e-1")
        self.target = Target(key=KEY, arn="t", role="r", low=1, high=4)
        self.registry = SimpleNamespace(
            targets={KEY: self.target},
            activities=[],
            policies_of=lambda key: [tracking()] if policies is None else policies,
        )
        self.scaler = Autoscaler(
            self.registry,
            self,
            lambda names: dict.fromkeys(set(names) & set(in_alarm), "ALARM"),
            stretch=1.0,
        )

    def endpoint_named(self, name):
        return self.endpoint

    def instances(self, name):
        return {"v": (self.current, self.desired)}

    def scale(self, endpoint, variant, desired):
        if self.refuses:
            raise AwsError("ValidationException", "in progress")
        self.desired, self.endpoint.status = desired, "Updating"

    def act(self, *breaches):
        self.scaler.act(self.target, breaches, NOW)
        return self.desired

    def settle(self, failure=None):
        """The endpoint comes to what was asked, or says why not; the newest activity then."""
        self.endpoint.status, self.endpoint.failure_reason = "InService", failure
        self.current = self.current if failure else self.desired
        self.scaler.step((), NOW)
        return self.registry.activities[0]


TWO, DISABLED = [tracking(), tracking("gpu")], [tracking(DisableScaleIn=True)]
GPU = high(200.0, name="gpu", threshold=60.0)


@pytest.mark.parametrize(
    ("scene", "breaches", "desired"),
    [
        ({}, [high(700, 800, 1500)], 3),
        ({"current": 3}, [high(6000)], 4),
        ({"current": 4}, [high(6000)], 4),
        ({"current": 4}, [low(*[10] * 14, 290)], 2),
        ({"current": 4}, [low(*[0] * 15)], 1),
        ({}, [low(*[0] * 15)], 1),
        ({"policies": [tracking(), tracking("gpu", target=60.0)]}, [high(700), GPU], 4),
        ({"current": 4, "policies": TWO}, [low(10)], 4),
        ({"current": 4, "policies": TWO, "in_alarm": [GPU_IS_LOW]}, [low(10)], 1),
        ({"current": 4, "policies": [TWO[0], tracking("gpu", DisableScaleIn=True)]}, [low(10)], 1),
        ({"current": 4, "policies": DISABLED}, [low(10)], 4),
        ({"status": "Updating"}, [high(1500)], 1),
        ({"policies": [STEPPING]}, [high(5.0, name="steps", threshold=1.0)], 3),
        ({}, [high(1500, name="unknown")], 1),
    ],
)
def test_scales_to_what_the_alarms_ask_for_within_bounds(scene, breaches, desired):
    assert Scene(**scene).act(*breaches) == desired


@pytest.mark.parametrize(
    ("current", "last", "breach", "desired"),
    [
        (2, Change(before=1, after=2, at=NOW - 30), high(700), 2),
        (2, Change(before=1, after=2, at=NOW - 30), high(1100), 3),
        (2, Change(before=1, after=2, at=NOW - 61), high(700), 3),
        (3, Change(before=4, after=3, at=NOW - 299), low(10), 3),
        (3, Change(before=4, after=3, at=NOW - 299), high(700), 4),
    ],
)
def test_a_cool_down_holds_back_the_same_direction_only(current, last, breach, desired):
    scene = Scene(current=current)
    scene.target.last = last
    assert scene.act(breach) == desired


@pytest.mark.parametrize(
    ("suspended", "breach", "desired"),
    [(OUT, high(1500), 2), (OUT, low(10), 1), (IN, low(10), 2), (IN, high(700), 3)],
)
def test_a_suspended_direction_rests(suspended, breach, desired):
    scene = Scene(current=2)
    scene.target.suspended[suspended] = True
    assert scene.act(breach) == desired


def test_an_activity_ends_with_the_change_and_begins_the_cool_down():
    scene = Scene()
    scene.act(high(1500))
    described = scene.registry.activities[0].as_description()
    assert described["Cause"].endswith("AlarmHigh-1 in state ALARM triggered policy p")
    assert described["StatusMessage"].endswith("Waiting for change to be fulfilled by sagemaker.")
    scene.scaler.step((), NOW)
    assert scene.registry.activities[0].status == "InProgress"
    ended = scene.settle().as_description()
    assert (ended["StatusCode"], ended["StatusMessage"]) == (
        "Successful",
        "Successfully set desired instance count to 3. Change successfully fulfilled by sagemaker.",
    )
    assert (scene.target.last.before, scene.target.last.after) == (1, 3)


@pytest.mark.parametrize(
    ("refuses", "reason"),
    [
        (False, "no capacity"),
        (True, "in progress (Service: AmazonSageMaker; Status Code: 400; Error Code: Validation"),
    ],
)
def test_an_activity_fails_with_the_reason_of_sagemaker(refuses, reason):
    scene = Scene(refuses=refuses)
    scene.act(high(1500))
    ended = scene.settle(failure=reason)
    start = f"Failed to set desired instance count to 3. Reason: {reason}"
    assert (ended.status, ended.message[: len(start)]) == ("Failed", start)
    assert scene.target.last is None


def test_bounds_are_enforced_when_they_are_set():
    scene = Scene()
    scene.target.low = 3
    scene.scaler.enforce(scene.target)
    assert scene.desired == 3
    assert scene.registry.activities[0].cause == "minimum capacity was set to 3"
