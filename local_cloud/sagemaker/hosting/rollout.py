"""How a deployment config shifts traffic, as a plan: shares, batches, waits and alarms. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

STEP_OF = {"CANARY": "CanarySize", "LINEAR": "LinearStepSize"}


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """Shares of traffic, each held for a wait; or, when rolling, the copies of each batch.

    Waits and the limit are in AWS's seconds; `limit_seconds` None is no limit.
    """

    shares: tuple[float, ...] = (1.0,)
    batches: tuple[int, ...] = ()
    wait_seconds: float = 0.0
    termination_wait_seconds: float = 0.0
    limit_seconds: float | None = None
    alarms: tuple[str, ...] = ()


def rollout(deployment: Mapping[str, Any] | None, counts: Mapping[str, int]) -> Rollout:
    """Return the plan for variants with these counts; all at once, unwatched, without a config."""
    if not deployment:
        return Rollout()
    alarms = (deployment.get("AutoRollbackConfiguration") or {}).get("Alarms") or ()
    plan = Rollout(alarms=tuple(alarm["AlarmName"] for alarm in alarms))
    if deployment.get("RollingUpdatePolicy") is not None:
        return _rolling(plan, deployment["RollingUpdatePolicy"], counts)
    if deployment.get("BlueGreenUpdatePolicy") is not None:
        return _blue_green(plan, deployment["BlueGreenUpdatePolicy"], counts)
    return plan


def _blue_green(plan: Rollout, policy: Mapping[str, Any], counts: Mapping[str, int]) -> Rollout:
    routing = policy["TrafficRoutingConfiguration"]
    size = routing.get(STEP_OF.get(routing["Type"], ""))
    step = 1.0 if size is None else _fraction(size, counts)
    linear = routing["Type"] == "LINEAR"
    return replace(
        plan,
        shares=linear_shares(step) if linear else tuple(sorted({min(step, 1.0), 1.0})),
        wait_seconds=float(routing.get("WaitIntervalInSeconds", 0)),
        termination_wait_seconds=float(policy.get("TerminationWaitInSeconds", 0)),
        limit_seconds=policy.get("MaximumExecutionTimeoutInSeconds"),
    )


def _rolling(plan: Rollout, policy: Mapping[str, Any], counts: Mapping[str, int]) -> Rollout:
    total = sum(counts.values())
    return replace(
        plan,
        batches=batches(total, _fraction(policy["MaximumBatchSize"], counts)),
        wait_seconds=float(policy.get("WaitIntervalInSeconds", 0)),
        limit_seconds=policy.get("MaximumExecutionTimeoutInSeconds"),
    )


def linear_shares(step: float) -> tuple[float, ...]:
    """Shares of traffic in equal steps up to all of it: 0.4 is 0.4, 0.8, 1."""
    steps = math.ceil(1 / step - 1e-9)
    return (*(step * number for number in range(1, steps)), 1.0)


def batches(total: int, fraction: float) -> tuple[int, ...]:
    """Copies of each batch: at most a fraction of all, at least one."""
    size = max(1, math.floor(total * fraction + 1e-9))
    return tuple(min(size, total - done) for done in range(0, total, size))


def _fraction(size: Mapping[str, Any], counts: Mapping[str, int]) -> float:
    value = float(size["Value"])
    if size["Type"] == "CAPACITY_PERCENT":
        return value / 100
    return value / max(1, min(counts.values(), default=1))
