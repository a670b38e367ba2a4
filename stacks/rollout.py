"""How a new version of an endpoint takes over, and how long its instances may take.

Source: SageMaker developer guide, "Deployment guardrails for updating models in production".
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from onboarding.aws_limits import (
    DOWNLOAD_SECONDS,
    EXECUTION_SECONDS,
    START_UP_SECONDS,
    STEP_PERCENT,
)
from onboarding.deployment import Deployment, Variant
from onboarding.text_generation.generation_deployment import GenerationDeployment
from onboarding.values import STARTS_BY_COMPILING, Rollout

WAIT_SECONDS = 300
"""Between two steps: as long as alarms look back, so that each can trip before the next."""
TERMINATION_SECONDS = WAIT_SECONDS
"""The old fleet stays this long after the last step.

With all traffic at once no alarm can trip at another time ("Use all at once traffic shifting").
"""
MOST_PERCENT = STEP_PERCENT["canary"].most
LEAST_PERCENT: dict[Rollout, int] = {"canary": 10, "linear": 25, "rolling": 25}
LEAST_INSTANCES = 2
"""Half of a fleet, the most that a step may take, is a whole instance from here on."""

DOWNLOAD_MIB_PER_SECOND = 20
LEAST_DOWNLOAD_SECONDS = 300
"""Pulling and extracting an archive on a busy host takes minutes, however small the archive is."""
CONTAINER_SECONDS = 60
COMPILING_SECONDS = 1800
"""For a baseline that its server compiles; no build measures how long that takes."""
OWN_START_UP_SECONDS = 480
"""SageMaker's own limit for a container ("the 8 minutes after startup", developer guide, "Custom
inference code with hosting services"), and the least here: a host that has just pulled an image of
gigabytes reads CUDA and TensorRT from its disk for the first time.
"""
PROVISION_SECONDS = 1800
"""SageMaker's search for instances of a type; no more than that in all pools together."""


def effective_rollout(deployment: Deployment | GenerationDeployment) -> Rollout:
    """Return how the endpoint is updated: all at once where a variant may have one instance only.

    AWS documents steps of at most half of a variant's instances, and no rounding of less than one.
    An inference component has rolling updates alone, of its copies.
    """
    if isinstance(deployment, GenerationDeployment) or deployment.is_component:
        return "rolling"
    return (
        deployment.endpoint.rollout
        if fewest_instances(deployment) >= LEAST_INSTANCES
        else "all-at-once"
    )


def fewest_instances(deployment: Deployment | GenerationDeployment) -> int:
    """Return the least number of instances that a production variant begins with, or of copies."""
    if isinstance(deployment, GenerationDeployment):
        return max(1, deployment.spec.endpoint.copies.min)
    return min(
        initial_count(variant) for variant in deployment.variants if variant.role == "variant"
    )


def initial_count(variant: Variant) -> int:
    """Return how many instances a new endpoint begins with; SageMaker takes no 0."""
    return max(1, variant.scaling.min)


def step_percent(deployment: Deployment | GenerationDeployment) -> int:
    """Return the share of the smallest variant, or of the copies, that one step takes, up to half.

    One whole instance or copy at least. A count would be refused where scaling has brought the
    instances below twice that count.
    """
    least = LEAST_PERCENT.get(effective_rollout(deployment), MOST_PERCENT)
    return min(MOST_PERCENT, max(least, math.ceil(100 / fewest_instances(deployment))))


def variant_timeouts(deployment: Deployment, variant: Variant) -> tuple[int, int]:
    """Return the seconds for (download, start-up) of a variant, whatever pool serves it.

    Those of a multi-model endpoint do not depend on its models, which come and go without a
    rollout; its container starts without one.
    """
    targets = [target for pool in variant.pools for target in pool.targets]
    locked = () if deployment.multi_model else targets
    entries = [target.lock_entry for target in locked if target.lock_entry is not None]
    compiles = any(target.runtime in STARTS_BY_COMPILING for target in targets)
    loads = [entry.manifest.load_seconds for entry in entries]
    return (
        download_timeout_seconds([entry.archive.size_bytes for entry in entries]),
        COMPILING_SECONDS if compiles else start_up_timeout_seconds(loads),
    )


def download_timeout_seconds(sizes: Sequence[int]) -> int:
    """Return a minute and the largest archive at 20 MiB/s, from 300 to SageMaker's 3600 seconds."""
    seconds = CONTAINER_SECONDS + max(sizes, default=0) / 2**20 / DOWNLOAD_MIB_PER_SECOND
    return DOWNLOAD_SECONDS.clamp(max(LEAST_DOWNLOAD_SECONDS, math.ceil(seconds)))


def start_up_timeout_seconds(load_seconds: Sequence[float]) -> int:
    """Return a minute and four times the slowest measured load, from 480 to 3600 seconds."""
    seconds = CONTAINER_SECONDS + 4 * max(load_seconds, default=0.0)
    return START_UP_SECONDS.clamp(max(OWN_START_UP_SECONDS, math.ceil(seconds)))


def ready_seconds(deployment: Deployment, variant: Variant) -> int:
    """Return the longest that one more instance may take until it answers."""
    return PROVISION_SECONDS + sum(variant_timeouts(deployment, variant))


def execution_seconds(deployment: Deployment) -> int:
    """Return twice the sum of all limits: an update that runs out of time is rolled back."""
    rollout, steps = effective_rollout(deployment), math.ceil(100 / step_percent(deployment))
    fleets = steps if rollout == "rolling" else 1
    waits = {"canary": 2, "all-at-once": 1}.get(rollout, steps)
    ready = max(ready_seconds(deployment, variant) for variant in deployment.variants)
    return EXECUTION_SECONDS.clamp(
        2 * (fleets * ready + waits * WAIT_SECONDS + TERMINATION_SECONDS)
    )
