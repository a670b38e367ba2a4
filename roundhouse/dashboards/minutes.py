"""What each metric says of one minute of a synthetic day."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

from onboarding.deployment import Deployment, Variant
from roundhouse.dashboards.day import Minute
from stacks.capacity.engine import gpus_used

PERCENTILES = ((0.0, 0.22), (50.0, 0.32), (95.0, 0.55), (99.0, 0.66), (100.0, 0.9))
"""Of the latency expected at most, when an instance is idle."""
COLD_MINUTES = 3


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A metric's values in one minute: how many, their sum, lowest and highest; `latency_ms`
    spreads them like latencies.
    """

    count: float
    total: float
    low: float
    high: float
    latency: Minute | None = None

    def percentile(self, percent: float) -> float:
        """Between the lowest and the highest, or as latencies lie."""
        if self.latency is None:
            return self.low + (self.high - self.low) * percent / 100
        return latency_ms(self.latency, percent) * 1000


def sample(name: str, minute: Minute, deployment: Deployment, variant: Variant) -> Sample | None:
    """None where the metric has no value in the minute."""
    found = METRICS.get(name)
    return None if found is None else found(minute, deployment, variant)


def latency_ms(minute: Minute, percent: float) -> float:
    """Of the model: it grows with the load, most of all over the capacity; a new version begins
    cold, and is faster then.
    """
    pairs = itertools.pairwise(PERCENTILES)
    (low, at_low), (high, at_high) = next(pair for pair in pairs if percent <= pair[1][0])
    share = at_low + (at_high - at_low) * (percent - low) / (high - low)
    busy = share * (1 + 0.55 * minute.busy**2) * (1 + 3 * max(0.0, minute.busy - 1))
    since = minute.since_rollout
    version = 1.0 if since is None else (1.35 if since < COLD_MINUTES else 0.9)
    return minute.expected_ms * busy * version * (1 + 0.05 * minute.noise * percent / 100)


def _each(
    value: Callable[[Minute], float],
) -> Callable[[Minute, Deployment, Variant], Sample | None]:
    """A metric with one value for each request."""

    def of(minute: Minute, deployment: Deployment, variant: Variant) -> Sample:
        one = value(minute)
        return Sample(count=minute.requests, total=minute.requests * one, low=one, high=one)

    return of


def _hosts(
    value: Callable[[Minute, Deployment, Variant], float],
) -> Callable[[Minute, Deployment, Variant], Sample]:
    """A metric with one value for each instance, the fullest a little above the others."""

    def of(minute: Minute, deployment: Deployment, variant: Variant) -> Sample:
        one = value(minute, deployment, variant)
        return Sample(
            count=minute.reported, total=minute.reported * one, low=one * 0.97, high=one * 1.03
        )

    return of


def _latency(minute: Minute, deployment: Deployment, variant: Variant) -> Sample:
    mean = latency_ms(minute, 58) * 1000
    return Sample(
        count=minute.requests,
        total=minute.requests * mean,
        low=mean / 3,
        high=mean * 3,
        latency=minute,
    )


def _shares(share: Callable[[Minute], float]) -> Callable[[Minute, Deployment, Variant], Sample]:
    """0 or 1 for each request."""

    def of(minute: Minute, deployment: Deployment, variant: Variant) -> Sample:
        return Sample(
            count=minute.requests, total=round(minute.requests * share(minute)), low=0, high=1
        )

    return of


def _client_share(minute: Minute) -> float:
    return 0.003 + 0.0015 * minute.noise


def _server_share(minute: Minute) -> float:
    cold = minute.since_rollout is not None and minute.since_rollout < COLD_MINUTES
    return 0.002 * cold + 0.2 * max(0.0, minute.busy - 1)


def _gpus(minute: Minute, deployment: Deployment, variant: Variant) -> float:
    return gpus_used(deployment, variant.instance_type) * min(
        97.0, 100 * minute.busy * 0.86 + 2 * abs(minute.noise)
    )


def _gpu_memory(minute: Minute, deployment: Deployment, variant: Variant) -> float:
    return gpus_used(deployment, variant.instance_type) * (
        38.0 if minute.since_rollout is None else 43.0
    )


def _cores(minute: Minute, deployment: Deployment, variant: Variant) -> float:
    return (variant.instance_type.vcpus or 4) * min(100.0, 9 + 38 * minute.busy + 2 * minute.noise)


def _misses(minute: Minute) -> float:
    since = minute.since_rollout
    return 0.0 if since is None or since >= COLD_MINUTES else 0.4 / (since + 1)


def _loads(milliseconds: float) -> Callable[[Minute, Deployment, Variant], Sample | None]:
    """One value for each load of a model: after a rollout nothing is loaded."""

    def of(minute: Minute, deployment: Deployment, variant: Variant) -> Sample | None:
        if not _misses(minute):
            return None
        models, one = (
            len(variant.targets) * minute.instances,
            milliseconds * 1000 * (1 + 0.1 * minute.noise),
        )
        return Sample(count=models, total=models * one, low=one * 0.8, high=one * 1.3)

    return of


def _queue(value: Callable[[Minute], float]) -> Callable[[Minute, Deployment, Variant], Sample]:
    """A metric of the queue: one value a minute."""

    def of(minute: Minute, deployment: Deployment, variant: Variant) -> Sample:
        one = value(minute)
        return Sample(count=1, total=one, low=one, high=one)

    return of


def _backlog(minute: Minute) -> float:
    return minute.requests * (0.05 + 0.5 * minute.busy**3)


def _waiting_seconds(minute: Minute) -> float:
    return 2 + 55 * minute.busy**3


def _counted(share: float) -> Callable[[Minute, Deployment, Variant], Sample]:
    def of(minute: Minute, deployment: Deployment, variant: Variant) -> Sample:
        return Sample(count=1, total=round(minute.requests * share), low=0, high=1)

    return of


METRICS: dict[str, Callable[[Minute, Deployment, Variant], Sample | None]] = {
    "Invocations": _each(lambda minute: 1.0),
    "InvocationsPerInstance": _each(lambda minute: 1 / minute.instances),
    "ModelLatency": _latency,
    "OverheadLatency": _each(lambda minute: (2.1 + 0.3 * minute.noise + 2 * minute.busy) * 1000),
    "Invocation4XXErrors": _shares(_client_share),
    "Invocation5XXErrors": _shares(_server_share),
    "InvocationModelErrors": _shares(lambda minute: _client_share(minute) + _server_share(minute)),
    "ConcurrentRequestsPerModel": _hosts(lambda minute, deployment, variant: 8 * minute.busy),
    "CPUUtilization": _hosts(_cores),
    "MemoryUtilization": _hosts(lambda minute, deployment, variant: 31 + 4 * minute.busy),
    "DiskUtilization": _hosts(
        lambda minute, deployment, variant: 18.0 if minute.since_rollout is None else 19.5
    ),
    "GPUUtilization": _hosts(_gpus),
    "GPUMemoryUtilization": _hosts(_gpu_memory),
    "LoadedModelCount": _hosts(
        lambda minute, deployment, variant: len(variant.targets) * (1 - _misses(minute))
    ),
    "ModelCacheHit": _shares(lambda minute: 1 - _misses(minute)),
    "ModelLoadingWaitTime": _loads(6200),
    "ModelDownloadingTime": _loads(3600),
    "ModelLoadingTime": _loads(2500),
    "ApproximateBacklogSize": _queue(_backlog),
    "ApproximateBacklogSizePerInstance": _queue(lambda minute: _backlog(minute) / minute.instances),
    "ApproximateAgeOfOldestRequest": _queue(_waiting_seconds),
    "HasBacklogWithoutCapacity": _queue(lambda minute: 0.0),
    "InvocationsProcessed": _counted(0.997),
    "InvocationFailures": _counted(0.003),
    "ExpiredRequests": _counted(0.0),
    "TimeInBacklog": _queue(lambda minute: _waiting_seconds(minute) * 0.6e6),
    "TotalProcessingTime": _queue(
        lambda minute: _waiting_seconds(minute) * 0.6e6 + minute.expected_ms * 1000
    ),
}
"""Metrics that a day has; of others it has none."""
