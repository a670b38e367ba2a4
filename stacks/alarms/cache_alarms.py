"""Alarms on a multi-model endpoint's memory as a cache of models.

Too many are not there, and those wait too long.
"""

from __future__ import annotations

from collections.abc import Iterator

from onboarding.deployment import Deployment, Variant
from onboarding.memory import fewest_resident, pool_memories
from stacks.alarms.alarm import (
    INVOCATIONS,
    MICROSECONDS_A_SECOND,
    UNDER,
    Alarm,
    Computed,
    Condition,
    Metric,
    percent,
)
from stacks.rollout import DOWNLOAD_MIB_PER_SECOND, locked_entries
from stacks.scaling.resources import dimensions

PERIOD = 300
LASTING = 3
LEAST_REQUESTS = 50
"""Requests in five minutes, below which a share says nothing."""
LONGEST_SECONDS = 60
"""SageMaker waits no longer for an answer."""


def cache_alarms(deployment: Deployment, variant: Variant) -> Iterator[Alarm]:
    """None for an endpoint of one model."""
    if not deployment.multi_model:
        return
    yield _hits(deployment, variant)
    slowest = slowest_load_seconds(variant)
    if slowest is not None:
        yield _waiting(deployment, variant, slowest)


def expected_hits(deployment: Deployment) -> float:
    """Lowest share of evenly spread requests whose model is in memory, by the locks' sizes."""
    plans = [plan for plan in pool_memories(deployment) if plan.models and plan.memory is not None]
    return min(
        [fewest_resident(plan.models, plan.capacity_mib) / len(plan.models) for plan in plans],
        default=1.0,
    )


def slowest_load_seconds(variant: Variant) -> float | None:
    """Download at 20 MiB/s and measured load of the slowest model; None when none is built."""
    return max(
        (
            entry.archive.size_bytes / 2**20 / DOWNLOAD_MIB_PER_SECOND + entry.manifest.load_seconds
            for entry in locked_entries(variant)
        ),
        default=None,
    )


def _hits(deployment: Deployment, variant: Variant) -> Alarm:
    expected = expected_hits(deployment)
    metrics = {
        "hits": _metric(deployment, variant, "ModelCacheHit", "Average"),
        "requests": _metric(deployment, variant, "ModelCacheHit", "SampleCount"),
    }
    return Alarm(
        part="CacheHits",
        kind="cache-hits",
        variant=variant,
        watched=Computed(
            expression=f"IF(requests >= {LEAST_REQUESTS}, hits, 1)",
            label="cache hits, share",
            metrics=metrics,
        ),
        condition=Condition(
            threshold=expected / 2, comparison=UNDER, points=LASTING, periods=LASTING
        ),
        explanation=(
            f"fewer than {percent(expected / 2)} of the requests find their model in memory: half"
            f" of the {percent(expected)} of the models that fit, whichever they are, by what the"
            " locks measured"
        ),
    )


def _waiting(deployment: Deployment, variant: Variant, slowest: float) -> Alarm:
    limit = min(LONGEST_SECONDS, round(2 * slowest, 1))
    return Alarm(
        part="LoadingWait",
        kind="loading-wait",
        variant=variant,
        watched=_metric(deployment, variant, "ModelLoadingWaitTime", "Average"),
        condition=Condition(
            threshold=limit * MICROSECONDS_A_SECOND, points=LASTING, periods=LASTING
        ),
        explanation=(
            f"a request whose model is not in memory waits over {limit:g} s: twice what the slowest"
            f" takes, {slowest:.3g} s"
        ),
    )


def _metric(deployment: Deployment, variant: Variant, name: str, statistic: str) -> Metric:
    of = dimensions(deployment, variant)
    return Metric(
        namespace=INVOCATIONS, name=name, dimensions=of, statistic=statistic, period=PERIOD
    )
