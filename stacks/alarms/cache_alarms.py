"""Alarms on a multi-model endpoint's memory as a cache: misses, and how long they wait."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from onboarding.deployment import Deployment, Variant
from onboarding.memory import fewest_resident, pool_memories
from stacks.alarms.alarm import (
    MICROSECONDS_A_SECOND,
    UNDER,
    Alarm,
    Computed,
    percent,
    variant_metric,
)
from stacks.rollout import DOWNLOAD_MIB_PER_SECOND, locked_entries

PERIOD = 300
LASTING = 3
LEAST_REQUESTS = 50
"""Requests in five minutes, below which a share says nothing."""
LONGEST_SECONDS = 60
"""SageMaker waits no longer for an answer."""


def cache_alarms(deployment: Deployment, variant: Variant) -> Iterator[Alarm]:
    """Yield none for an endpoint of one model."""
    if not deployment.multi_model:
        return
    metric = partial(variant_metric, deployment, variant, period=PERIOD)
    expected = expected_hits(deployment)
    yield Alarm(
        part="CacheHits",
        kind="cache-hits",
        variant=variant,
        watched=Computed(
            expression=f"IF(requests >= {LEAST_REQUESTS}, hits, 1)",
            label="cache hits, share",
            metrics={
                "hits": metric("ModelCacheHit", "Average"),
                "requests": metric("ModelCacheHit", "SampleCount"),
            },
        ),
        threshold=expected / 2,
        comparison=UNDER,
        points=LASTING,
        periods=LASTING,
        explanation=(
            f"fewer than {percent(expected / 2)} of the requests find their model in memory: half"
            f" of the {percent(expected)} of the models that fit, whichever they are, by what the"
            " locks measured"
        ),
    )
    slowest = slowest_load_seconds(variant)
    if slowest is not None:
        limit = min(LONGEST_SECONDS, round(2 * slowest, 1))
        yield Alarm(
            part="LoadingWait",
            kind="loading-wait",
            variant=variant,
            watched=metric("ModelLoadingWaitTime", "Average"),
            threshold=limit * MICROSECONDS_A_SECOND,
            points=LASTING,
            periods=LASTING,
            explanation=(
                f"a request whose model is not in memory waits over {limit:g} s: twice what the"
                f" slowest takes, {slowest:.3g} s"
            ),
        )


def expected_hits(deployment: Deployment) -> float:
    """Lowest share of evenly spread requests whose model is in memory, by the locks' sizes."""
    plans = [plan for plan in pool_memories(deployment) if plan.models and plan.memory is not None]
    return min(
        [fewest_resident(plan.models, plan.capacity_mib) / len(plan.models) for plan in plans],
        default=1.0,
    )


def slowest_load_seconds(variant: Variant) -> float | None:
    """Download at 20 MiB/s and measured load of the slowest model; None when none is built."""
    seconds = [
        entry.archive.size_bytes / 2**20 / DOWNLOAD_MIB_PER_SECOND + entry.manifest.load_seconds
        for entry in locked_entries(variant)
    ]
    return max(seconds, default=None)
