"""How a new version of an endpoint takes over, and what an update keeps.

The template as pure data.
"""

from __future__ import annotations

import pytest

from stacks.endpoint.template import endpoint_template
from stacks.endpoint.warnings import endpoint_warnings, unwatched_alarms
from stacks.rollout import deployment_config
from tests.synth.deployments import one, with_endpoint, with_locks
from tests.synth.endpoint_cases import (
    BESIDE,
    IMAGES,
    MODEL,
    beside,
    endpoint_settings,
    example,
    of_type,
    properties,
    template,
    variants,
)

pytestmark = pytest.mark.unit

TARGET = "AWS::ApplicationAutoScaling::ScalableTarget"
FIXED = {"max: 2": "max: 1"}


# --- rollouts


@pytest.mark.parametrize(
    ("rollout", "fewest", "percent"),
    [
        ("canary", 2, 50),
        ("canary", 3, 34),
        ("canary", 20, 10),
        ("linear", 3, 34),
        ("linear", 20, 25),
        ("rolling", 2, 50),
        ("rolling", 20, 25),
    ],
)
def test_step_of_a_rollout_is_one_instance_or_more_and_half_at_most(rollout, fewest, percent):
    changes = {
        MODEL: endpoint_settings(
            f"rollout: {rollout}", **{"min: 1": f"min: {fewest}", "max: 2": "max: 40"}
        )
    }
    deployment = properties(template(changes), "Endpoint")["DeploymentConfig"]
    policy = (
        deployment.get("RollingUpdatePolicy")
        or deployment["BlueGreenUpdatePolicy"]["TrafficRoutingConfiguration"]
    )
    size = policy[
        {"canary": "CanarySize", "linear": "LinearStepSize", "rolling": "MaximumBatchSize"}[rollout]
    ]
    assert size == {"Type": "CAPACITY_PERCENT", "Value": percent}
    assert percent == 50 or fewest * percent / 100 >= 1
    assert len({"BlueGreenUpdatePolicy", "RollingUpdatePolicy"} & deployment.keys()) == 1


def test_step_of_a_rollout_counts_the_smallest_variant():
    changes = {
        MODEL: {"min: 1": "min: 20", "max: 2": "max: 40"},
        BESIDE: beside("{joins: example, scaling: {min: 4, max: 4}}"),
    }
    routing = properties(template(changes), "Endpoint")["DeploymentConfig"]["BlueGreenUpdatePolicy"]
    assert routing["TrafficRoutingConfiguration"]["CanarySize"]["Value"] == 25


def test_rollout_all_at_once_has_no_step_and_keeps_the_alarms():
    deployment = properties(
        template({MODEL: endpoint_settings("rollout: all-at-once")}), "Endpoint"
    )["DeploymentConfig"]
    routing = deployment["BlueGreenUpdatePolicy"]["TrafficRoutingConfiguration"]
    assert set(routing) == {"Type", "WaitIntervalInSeconds"}
    assert deployment["AutoRollbackConfiguration"]["Alarms"]


@pytest.mark.parametrize("rollout", ["canary", "linear", "rolling", "all-at-once"])
@pytest.mark.parametrize("load_seconds", [0.5, 200.0, 5000.0])
def test_rollout_has_time_for_every_wait_and_every_start(rollout, load_seconds):
    deployment = with_endpoint(
        with_locks(one("dev", "sentence-embedder"), load_seconds=load_seconds), rollout=rollout
    )
    found = endpoint_template(deployment, IMAGES)
    rolled = properties(found, "Endpoint")["DeploymentConfig"]
    policy = rolled.get("RollingUpdatePolicy") or rolled["BlueGreenUpdatePolicy"]
    routing = policy.get("TrafficRoutingConfiguration", policy)
    percent = next(
        (routing[key]["Value"] for key in ("LinearStepSize", "MaximumBatchSize") if key in routing),
        100,
    )
    steps, variant = -(-100 // percent), variants(found)["AllTraffic"]
    start = (
        variant["ContainerStartupHealthCheckTimeoutInSeconds"]
        + variant["ModelDataDownloadTimeoutInSeconds"]
    )
    least = (
        steps * routing["WaitIntervalInSeconds"] + policy.get("TerminationWaitInSeconds", 0) + start
    )
    assert least < policy["MaximumExecutionTimeoutInSeconds"] <= 28800


def alarm_period(alarm):
    """Of an alarm on metric math the longest of its metrics'."""
    queries = alarm.get("Metrics", [])
    return max(
        [query["MetricStat"]["Period"] for query in queries if "MetricStat" in query],
        default=alarm.get("Period"),
    )


def test_alarms_can_trip_before_the_next_step():
    found = template({MODEL: endpoint_settings("rollout: linear", "latency_slo_ms: 50")})
    rolled = properties(found, "Endpoint")["DeploymentConfig"]
    watched = {alarm["AlarmName"] for alarm in rolled["AutoRollbackConfiguration"]["Alarms"]}
    alarms = [
        item
        for item in of_type(found, "AWS::CloudWatch::Alarm").values()
        if item["AlarmName"] in watched
    ]
    needed = max(alarm_period(element) * element["DatapointsToAlarm"] for element in alarms)
    assert (
        needed
        <= rolled["BlueGreenUpdatePolicy"]["TrafficRoutingConfiguration"]["WaitIntervalInSeconds"]
    )


def test_rollout_is_taken_back_by_the_first_ten_alarms_and_the_others_are_noted():
    deployment, alarms = one("dev", "sentence-embedder"), [f"Alarm{number}" for number in range(12)]
    watched = deployment_config(deployment, alarms)["AutoRollbackConfiguration"]["Alarms"]
    assert [alarm["AlarmName"] for alarm in watched] == alarms[:10]
    (warning,) = unwatched_alarms(deployment, alarms)
    assert "12 alarms" in warning and warning.endswith("these only notify: Alarm10, Alarm11.")
    assert list(unwatched_alarms(deployment, alarms[:10])) == []


# --- what an update keeps


def test_update_keeps_moving_counts_and_takes_the_weights():
    endpoint = properties(template({}), "Endpoint")
    condition, retained, otherwise = endpoint["RetainAllVariantProperties"]["Fn::If"]
    assert (condition, retained) == ("VariantPropertiesAreRetained", True)
    assert otherwise == {"Ref": "AWS::NoValue"}
    _, excluded, _ = endpoint["ExcludeRetainedVariantProperties"]["Fn::If"]
    assert excluded == [{"VariantPropertyType": "DesiredWeight"}]


def test_update_of_a_fixed_count_takes_the_count():
    first = template({MODEL: FIXED})
    second = template({MODEL: {"min: 1": "min: 2"}})
    assert (
        not {"RetainAllVariantProperties", "ExcludeRetainedVariantProperties"}
        & properties(first, "Endpoint").keys()
    )
    assert [
        variants(document)["AllTraffic"]["InitialInstanceCount"] for document in (first, second)
    ] == [1, 2]
    assert of_type(first, TARGET) == {} == of_type(second, TARGET)


def test_update_keeps_counts_that_a_schedule_moves():
    schedule = {
        "    max: 2": "    max: 1\n    schedule: [{schedule: 'cron(0 6 * * ? *)', min: 2, max: 3}]"
    }
    found = template({MODEL: schedule})
    assert properties(found, "Endpoint")["RetainAllVariantProperties"]["Fn::If"][1] is True
    assert of_type(found, TARGET)


def test_fixed_count_beside_a_moving_one_is_held_by_its_bounds():
    found = template({BESIDE: beside("{joins: example, scaling: {min: 3, max: 3}}")})
    targets = of_type(found, TARGET)
    assert set(targets) == {"ScalableTarget", "ScalableTargetBeside"}
    held = targets["ScalableTargetBeside"]
    assert held["ResourceId"] == "endpoint/cloud-example/variant/beside"
    assert (held["MinCapacity"], held["MaxCapacity"]) == (3, 3)
    assert found["Resources"]["ScalableTargetBeside"]["DependsOn"] == ["Endpoint"]


def test_held_target_keeps_its_logical_id_when_the_variant_begins_to_scale():
    held = template({BESIDE: beside("{joins: example, scaling: {min: 3, max: 3}}")})
    scaled = template({BESIDE: beside("{joins: example, scaling: {min: 3, max: 6}}")})
    resource_ids = [
        of_type(entry, TARGET)["ScalableTargetBeside"]["ResourceId"] for entry in (held, scaled)
    ]
    assert resource_ids[0] == resource_ids[1]


def test_shadow_beside_a_moving_count_says_that_its_own_stays():
    deployment = example({BESIDE: beside("{joins: example, role: shadow}")})
    assert any(
        "shadow beside begins with 1 instance and keeps that count" in warning
        for warning in endpoint_warnings(deployment)
    )
    fixed = example({MODEL: FIXED, BESIDE: beside("{joins: example, role: shadow}")})
    assert not any("shadow" in warning for warning in endpoint_warnings(fixed))
