"""Deployment configs as plans: shares and batches."""

import pytest

from local_cloud.sagemaker.hosting.rollout import Rollout, rollout

pytestmark = pytest.mark.unit
FOUR = {"AllTraffic": 4}


def percent(value):
    return {"Type": "CAPACITY_PERCENT", "Value": value}


def count(value):
    return {"Type": "INSTANCE_COUNT", "Value": value}


def blue_green(kind, *, wait=60, termination=0, limit=None, **sizes):
    policy = {"TrafficRoutingConfiguration": {"Type": kind, "WaitIntervalInSeconds": wait, **sizes}}
    if termination:
        policy["TerminationWaitInSeconds"] = termination
    return {
        "BlueGreenUpdatePolicy": policy
        | ({} if limit is None else {"MaximumExecutionTimeoutInSeconds": limit})
    }


def rolling(size, **more):
    return {"RollingUpdatePolicy": {"MaximumBatchSize": size, "WaitIntervalInSeconds": 60, **more}}


def test_no_deployment_config_is_all_at_once_and_unwatched():
    assert rollout(None, FOUR) == Rollout()


@pytest.mark.parametrize(
    ("deployment", "shares"),
    [
        (blue_green("ALL_AT_ONCE"), (1.0,)),
        (blue_green("CANARY", CanarySize=percent(30)), (0.3, 1.0)),
        (blue_green("CANARY", CanarySize=count(1)), (0.25, 1.0)),
        (blue_green("LINEAR", LinearStepSize=percent(50)), (0.5, 1.0)),
        (blue_green("LINEAR", LinearStepSize=percent(40)), (0.4, 0.8, 1.0)),
        (blue_green("LINEAR", LinearStepSize=count(1)), (0.25, 0.5, 0.75, 1.0)),
    ],
)
def test_blue_green_shares(deployment, shares):
    assert rollout(deployment, FOUR).shares == pytest.approx(shares)
    assert not rollout(deployment, FOUR).is_rolling


def test_rolling_batches_and_its_rollback():
    plan = rollout(rolling(percent(50)), FOUR)
    assert (plan.batches, plan.rollback_batches, plan.is_rolling) == ((2, 2), (4,), True)
    assert rollout(
        rolling(count(1), RollbackMaximumBatchSize=percent(50)), FOUR
    ).rollback_batches == (2, 2)
    assert rollout(rolling(percent(30)), {"a": 10}).batches == (3, 3, 3, 1)


def test_waits_alarms_and_limit_are_kept():
    deployment = {
        **blue_green("ALL_AT_ONCE", wait=300, termination=120, limit=1800),
        "AutoRollbackConfiguration": {"Alarms": [{"AlarmName": "a"}, {"AlarmName": "b"}]},
    }
    plan = rollout(deployment, FOUR)
    actual = (plan.wait_seconds, plan.termination_wait_seconds, plan.limit_seconds, plan.alarms)
    assert actual == (300, 120, 1800, ("a", "b"))
