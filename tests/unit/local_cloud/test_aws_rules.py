"""Rules of AWS that the local cloud follows: requests, states of alarms, and capacities."""

from types import SimpleNamespace

import pytest

from local_cloud.application_autoscaling.autoscaler import Autoscaler, Breach
from local_cloud.application_autoscaling.records import DIMENSION, STEP, Change, Key, Policy, Target
from local_cloud.cloudwatch.evaluation import Rule, verdict
from local_cloud.protocol.constraints import checked_request
from local_cloud.protocol.errors import AwsError

pytestmark = pytest.mark.unit

VARIANT = {"VariantName": "AllTraffic", "ModelName": "m", "InstanceType": "ml.g5.xlarge"}


def config(**changes):
    return {"EndpointConfigName": "c", "ProductionVariants": [VARIANT | changes]}


def test_text_of_templates_becomes_the_values_that_the_model_wants():
    typed = checked_request(
        "CreateEndpointConfig", config(InitialInstanceCount="2", InitialVariantWeight="0.5")
    )
    assert typed == config(InitialInstanceCount=2, InitialVariantWeight=0.5)
    request = {"EndpointName": "e", "EndpointConfigName": "c", "RetainAllVariantProperties": "true"}
    assert checked_request("UpdateEndpoint", request)["RetainAllVariantProperties"] is True


@pytest.mark.parametrize(
    ("request_", "faults"),
    [
        (config(InitialInstanceCount="many"), ("InitialInstanceCount, value: many, type",)),
        (config(InitialInstanceCount="1.5"), ("InitialInstanceCount, value: 1.5, type",)),
        ({"EndpointConfigName": "c", "ProductionVariants": 1}, ("ProductionVariants, value: 1",)),
        (
            config(VariantName=None, InitialInstanceCount=0),
            (
                'required parameter in ProductionVariants[0]: "VariantName"',
                "InitialInstanceCount, value: 0, valid min value: 1",
            ),
        ),
    ],
)
def test_refuses_every_fault_of_a_request_at_once(request_, faults):
    with pytest.raises(AwsError) as error:
        checked_request("CreateEndpointConfig", request_)
    assert error.value.code == "ValidationException"
    for fault in faults:
        assert fault in error.value.message


KEPT = "the present state"
TREATMENTS = ("missing", "ignore", "breaching", "notBreaching")
ROWS = [
    (3, "0 - X - X", "OK", "OK", "OK", "OK"),
    (3, "- - - - -", "INSUFFICIENT_DATA", KEPT, "ALARM", "OK"),
    (3, "0 X X - X", "ALARM", "ALARM", "ALARM", "ALARM"),
    (3, "- - X - -", "ALARM", KEPT, "ALARM", "OK"),
    (2, "0 0 X 0 X", "ALARM", "ALARM", "ALARM", "ALARM"),
    (2, "0 - X - -", "OK", "OK", "ALARM", "OK"),
    (2, "- - - X -", "ALARM", KEPT, "ALARM", "OK"),
]
"""CloudWatch's own tables of how an alarm treats missing data."""


@pytest.mark.parametrize(("needed", "row", "states"), [(row[0], row[1], row[2:]) for row in ROWS])
def test_state_of_an_alarm_is_as_the_tables_say(needed, row, states):
    points = [{"0": 5.0, "X": 20.0, "-": None}[word] for word in row.split()]
    for missing, expected in zip(TREATMENTS, states, strict=True):
        rule = Rule(
            comparison="GreaterThanThreshold",
            threshold=10,
            evaluation_periods=3,
            datapoints_to_alarm=needed,
            missing=missing,
        )
        found = verdict(rule, points, "OK").state
        assert found == ("OK" if expected is KEPT else expected), missing


KEY = Key("sagemaker", "endpoint/e/variant/v", DIMENSION)
NOW = 1_800_000_000.0
GPU_IS_LOW = "TargetTracking-gpu-AlarmLow-1"
OUT, IN = "DynamicScalingOutSuspended", "DynamicScalingInSuspended"


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


TWO, DISABLED = [tracking(), tracking("gpu")], [tracking(DisableScaleIn=True)]
GPU = high(200.0, name="gpu", threshold=60.0)
STEPS = {
    "Cooldown": 60,
    "StepAdjustments": [{"MetricIntervalLowerBound": 0, "ScalingAdjustment": 2}],
}
STEPPING = [Policy(key=KEY, name="steps", kind=STEP, arn="arn:steps", configuration=STEPS)]
GROWN, SHRUNK = Change(before=1, after=2, at=NOW - 30), Change(before=4, after=3, at=NOW - 299)


@pytest.mark.parametrize(
    ("current", "policies", "breaches", "scene", "desired"),
    [
        (1, None, [high(700, 800, 1500)], {}, 3),
        (3, None, [high(6000)], {}, 4),
        (4, None, [low(*[10] * 14, 290)], {}, 2),
        (1, None, [low(*[0] * 15)], {}, 1),
        (1, [tracking(), tracking("gpu", target=60.0)], [high(700), GPU], {}, 4),
        (4, TWO, [low(10)], {}, 4),
        (4, TWO, [low(10)], {"in_alarm": [GPU_IS_LOW]}, 1),
        (4, DISABLED, [low(10)], {}, 4),
        (1, None, [high(1500)], {"status": "Updating"}, 1),
        (1, STEPPING, [high(5.0, name="steps", threshold=1.0)], {}, 3),
        (1, None, [high(1500, name="unknown")], {}, 1),
        (2, None, [high(700)], {"last": GROWN}, 2),
        (2, None, [high(1100)], {"last": GROWN}, 3),
        (3, None, [low(10)], {"last": SHRUNK}, 3),
        (3, None, [high(700)], {"last": SHRUNK}, 4),
        (2, None, [high(1500)], {"suspended": OUT}, 2),
        (2, None, [low(10)], {"suspended": IN}, 2),
        (2, None, [high(700)], {"suspended": IN}, 3),
    ],
)
def test_scales_to_what_alarms_ask_for_within_bounds_and_cool_downs(
    current, policies, breaches, scene, desired
):
    counts = [current]
    endpoints = SimpleNamespace(
        instances=lambda name: {"v": (current, current)},
        endpoint_named=lambda name: SimpleNamespace(status=scene.get("status", "InService")),
        scale=lambda endpoint, variant, count: counts.append(count),
    )
    registry = SimpleNamespace(
        policies_of=lambda key: [tracking()] if policies is None else policies
    )
    states = dict.fromkeys(scene.get("in_alarm", ()), "ALARM")
    target = Target(key=KEY, arn="t", low=1, high=4, last=scene.get("last"))
    target.suspended |= {scene[name]: True for name in scene if name == "suspended"}
    scaler = Autoscaler(registry, SimpleNamespace(endpoints=endpoints), lambda names: states, 1.0)
    scaler.act(target, breaches, NOW)
    assert counts[-1] == desired
    assert (target.changing is None) == (desired == current)
