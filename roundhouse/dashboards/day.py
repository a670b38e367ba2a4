"""A synthetic day of one variant, minute by minute: a wave of load, a rollout in the morning, a
spike at the end.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from onboarding.deployment import Deployment, Variant
from stacks.capacity.latency import expected_latency
from stacks.capacity.variant import variant_capacity
from stacks.scaling.targets import invocations_target
from stacks.scaling.variants import fewest, most

MINUTES = 24 * 60
BEGINS_AT, ROLLOUT_AT, SPIKE_AT = 17 * 60, 10 * 60 + 30, 15 * 60 + 45
"""Minutes after midnight: the day is the 24 hours up to 17:00."""
ROLLOUT_MINUTES = 15
GROWS_AFTER, SHRINKS_AFTER = 6, 20
UNMEASURED_PER_MINUTE, UNMEASURED_MS = 6000.0, 20.0


@dataclass(frozen=True, kw_only=True)
class Minute:
    """What a variant did in one minute; `busy` is the share of its instances' capacity that was
    asked for.
    """

    requests: float
    instances: int
    reported: int
    """Instances that reported: in a rollout those of the old and of the new version."""
    busy: float
    since_rollout: int | None
    """Minutes since the rollout began; None before."""
    expected_ms: float
    noise: float
    """Between -1 and 1."""


def variant_day(deployment: Deployment, variant: Variant) -> tuple[Minute, ...]:
    """Every minute of the day."""
    chance = random.Random(f"{deployment.environment.name}/{deployment.name}/{variant.name}")
    capacity, target, expected = _measures(deployment, variant)
    wanted = [_load(minute, deployment, variant) for minute in range(MINUTES)]
    noise = _smooth([chance.uniform(-1, 1) for _ in range(MINUTES)])
    loads = [load * (1 + 0.04 * each) for load, each in zip(wanted, noise, strict=True)]
    counts = _counts(wanted, target, variant)
    return tuple(
        Minute(
            requests=round(loads[minute]),
            instances=counts[minute],
            reported=counts[minute] * (2 if _rolls(minute) else 1),
            busy=loads[minute] / (counts[minute] * capacity),
            since_rollout=_since_rollout(minute),
            expected_ms=expected,
            noise=noise[minute],
        )
        for minute in range(MINUTES)
    )


def most_instances(variant: Variant) -> int:
    """At least one."""
    return max(1, most(variant))


def _measures(deployment: Deployment, variant: Variant) -> tuple[float, float, float]:
    """Requests a minute of one instance at most, and at the scaling target; milliseconds expected."""
    capacity, expected = (
        variant_capacity(deployment, variant),
        expected_latency(deployment, variant),
    )
    aim = invocations_target(deployment, variant)
    per_minute = UNMEASURED_PER_MINUTE if capacity is None else capacity.requests_per_second * 60
    target = per_minute / 2 if aim is None else aim.value
    return per_minute, target, UNMEASURED_MS if expected is None else expected.milliseconds


def _load(minute: int, deployment: Deployment, variant: Variant) -> float:
    """Requests a minute of the endpoint, sized by its own variant: a variant's share of them, or a
    shadow's copy of all.
    """
    clock = (BEGINS_AT + minute) % MINUTES
    wave = 0.5 - 0.5 * math.cos(2 * math.pi * (clock - 3.5 * 60) / MINUTES)
    spike = 1.75 * min(1.0, (clock - SPIKE_AT) / 8) if SPIKE_AT <= clock < BEGINS_AT else 0.0
    _, target, _ = _measures(deployment, deployment.own)
    whole = (
        target
        * most_instances(deployment.own)
        * (0.12 + 0.72 * wave)
        * (1 + spike)
        / _share(deployment, deployment.own)
    )
    return whole * _share(deployment, variant)


def _share(deployment: Deployment, variant: Variant) -> float:
    weights = sum(each.weight for each in deployment.variants if each.role == "variant")
    return 1.0 if variant.role == "shadow" or variant.weight == 0 else variant.weight / weights


def _counts(loads: Sequence[float], target: float, variant: Variant) -> list[int]:
    """As target tracking would: out soon, in late."""
    low, high = max(1, fewest(variant)), most_instances(variant)
    wishes = [min(high, max(low, math.ceil(load / target))) for load in loads]
    return [
        max(wishes[max(0, at - SHRINKS_AFTER) : max(1, at - GROWS_AFTER + 1)])
        for at in range(len(wishes))
    ]


def _smooth(values: Sequence[float]) -> list[float]:
    """Each as the mean of its five neighbors."""
    return [
        sum(values[max(0, at - 2) : at + 3]) / len(values[max(0, at - 2) : at + 3])
        for at in range(len(values))
    ]


def _since_rollout(minute: int) -> int | None:
    clock = (BEGINS_AT + minute) % MINUTES
    return clock - ROLLOUT_AT if clock < BEGINS_AT and clock >= ROLLOUT_AT else None


def _rolls(minute: int) -> bool:
    since = _since_rollout(minute)
    return since is not None and since < ROLLOUT_MINUTES
