"""How a new version of an endpoint takes over the traffic, and how long it may take."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from onboarding.aws_limits import EXECUTION_SECONDS, ROLLBACK_ALARM_COUNT, STEP_PERCENT
from onboarding.deployment import Deployment
from onboarding.values import Rollout
from stacks.rollout.timeouts import ready_seconds

WAIT_SECONDS = 300
"""Between two steps: as long as the alarms look back, so that each of them can trip before the next
step.
"""
TERMINATION_SECONDS = WAIT_SECONDS
"""After the last step the old fleet stays for as long: with all traffic at once that is the only
time in which an alarm can trip
(SageMaker developer guide, "Use all at once traffic shifting", whose example has no other wait)."""
MOST_ALARMS = ROLLBACK_ALARM_COUNT
MOST_PERCENT = STEP_PERCENT["canary"].most
LEAST_PERCENT: dict[Rollout, int] = {"canary": 10, "linear": 25, "rolling": 25}


def deployment_config(deployment: Deployment, alarm_names: Sequence[str]) -> dict[str, Any]:
    """How a new version takes over, and the alarms that take it back: SageMaker watches ten at
    most, so the first ten.
    """
    rollout = deployment.endpoint.rollout
    if rollout == "rolling":
        policy = {"RollingUpdatePolicy": _rolling(deployment)}
    else:
        policy = {"BlueGreenUpdatePolicy": _blue_green(deployment, _routing(deployment))}
    alarms = [{"AlarmName": name} for name in alarm_names[:MOST_ALARMS]]
    return {**policy, **({"AutoRollbackConfiguration": {"Alarms": alarms}} if alarms else {})}


def step_percent(deployment: Deployment) -> int:
    """The share of a fleet that one step takes: enough for one whole instance of the smallest, at
    most SageMaker's half.

    A count would be refused where scaling has brought the instances below twice that count.
    """
    production = [variant for variant in deployment.variants if variant.role == "variant"]
    fewest = min(max(1, variant.scaling.min) for variant in production)
    least = LEAST_PERCENT.get(deployment.endpoint.rollout, MOST_PERCENT)
    return min(MOST_PERCENT, max(least, math.ceil(100 / fewest)))


def _routing(deployment: Deployment) -> dict[str, Any]:
    wait = {"WaitIntervalInSeconds": WAIT_SECONDS}
    size = {"Type": "CAPACITY_PERCENT", "Value": step_percent(deployment)}
    if deployment.endpoint.rollout == "canary":
        return {"Type": "CANARY", "CanarySize": size, **wait}
    if deployment.endpoint.rollout == "linear":
        return {"Type": "LINEAR", "LinearStepSize": size, **wait}
    return {"Type": "ALL_AT_ONCE", **wait}


def _blue_green(deployment: Deployment, routing: dict[str, Any]) -> dict[str, Any]:
    steps = {"CANARY": 2, "LINEAR": _steps(deployment), "ALL_AT_ONCE": 1}[routing["Type"]]
    return {
        "TrafficRoutingConfiguration": routing,
        "TerminationWaitInSeconds": TERMINATION_SECONDS,
        "MaximumExecutionTimeoutInSeconds": _execution_seconds(deployment, fleets=1, waits=steps),
    }


def _rolling(deployment: Deployment) -> dict[str, Any]:
    steps = _steps(deployment)
    return {
        "MaximumBatchSize": {"Type": "CAPACITY_PERCENT", "Value": step_percent(deployment)},
        "WaitIntervalInSeconds": WAIT_SECONDS,
        "MaximumExecutionTimeoutInSeconds": _execution_seconds(
            deployment, fleets=steps, waits=steps
        ),
    }


def _steps(deployment: Deployment) -> int:
    return math.ceil(100 / step_percent(deployment))


def _execution_seconds(deployment: Deployment, *, fleets: int, waits: int) -> int:
    """Twice the time that everything takes at its own limit: an update that runs out of time is
    rolled back.
    """
    ready = max(ready_seconds(variant) for variant in deployment.variants)
    seconds = 2 * (fleets * ready + waits * WAIT_SECONDS + TERMINATION_SECONDS)
    return EXECUTION_SECONDS.clamp(seconds)
