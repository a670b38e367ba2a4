"""CloudWatch metrics of a synthetic day: a wave of load, a rollout in the morning, a late spike."""

from __future__ import annotations

import itertools
import math
import random
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from local_cloud.cloudwatch.series import Found, Question, Series
from onboarding import names
from onboarding.deployment import Deployment, Variant
from onboarding.metrics import HOST, INVOCATIONS, METRICS, MetricFacts
from stacks.capacity.engine import gpus_used
from stacks.capacity.variant import expected_latency, variant_capacity
from stacks.scaling.targets import fewest, invocations_target, most

MINUTES = 24 * 60
BEGINS_AT, ROLLOUT_AT, SPIKE_AT = 17 * 60, 10 * 60 + 30, 15 * 60 + 45
"""Minutes after midnight: the day is the 24 hours up to 17:00."""
ROLLOUT_MINUTES = 15
GROWS_AFTER, SHRINKS_AFTER = 6, 20
UNMEASURED_PER_MINUTE, UNMEASURED_MS = 6000.0, 20.0
PERCENTILES = ((0.0, 0.22), (50.0, 0.32), (95.0, 0.55), (99.0, 0.66), (100.0, 0.9))
"""Of the latency expected at most, when an instance is idle."""
COLD_MINUTES = 3
PERIOD = 60.0
Key = tuple[str, str, tuple[tuple[str, str], ...]]


@dataclass(frozen=True, kw_only=True)
class Minute:
    """One minute of a variant; `busy` is the share of its capacity that was requested."""

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
    models: int
    gpus: int
    vcpus: int

    @property
    def cold(self) -> float:
        """1 while the instances of a new version are cold, else 0."""
        return float(self.since_rollout is not None and self.since_rollout < COLD_MINUTES)

    @property
    def misses(self) -> float:
        """Share of the requests whose model is not loaded yet."""
        return 0.4 / ((self.since_rollout or 0) + 1) if self.cold else 0.0


def variant_day(deployment: Deployment, variant: Variant) -> tuple[Minute, ...]:
    """Return every minute of the day."""
    chance = random.Random(f"{deployment.environment.name}/{deployment.name}/{variant.name}")
    raw_noise = [chance.uniform(-1, 1) for _ in range(MINUTES)]
    noise = [statistics.fmean(raw_noise[max(0, at - 2) : at + 3]) for at in range(MINUTES)]
    capacity, target = _capacity(deployment, variant)
    expected = expected_latency(deployment, variant)
    largest = _largest_load(deployment, variant)
    loads = [largest * _share_of_largest(minute) for minute in range(MINUTES)]
    minutes = []
    for minute, count in enumerate(_instance_counts(loads, target, variant)):
        requests = loads[minute] * (1 + 0.04 * noise[minute])
        clock = (BEGINS_AT + minute) % MINUTES
        since = clock - ROLLOUT_AT if ROLLOUT_AT <= clock < BEGINS_AT else None
        is_rolling = since is not None and since < ROLLOUT_MINUTES
        minutes.append(
            Minute(
                requests=round(requests),
                instances=count,
                reported=count * (2 if is_rolling else 1),
                busy=requests / (count * capacity),
                since_rollout=since,
                expected_ms=UNMEASURED_MS if expected is None else expected.milliseconds,
                noise=noise[minute],
                models=len(variant.targets),
                gpus=gpus_used(variant, variant.instance_type),
                vcpus=variant.instance_type.vcpus or 4,
            )
        )
    return tuple(minutes)


def _capacity(deployment: Deployment, variant: Variant) -> tuple[float, float]:
    """Return the requests a minute of one instance at most, and at the scaling target."""
    capacity = variant_capacity(deployment, variant)
    target = invocations_target(deployment, variant)
    most_requests = UNMEASURED_PER_MINUTE if capacity is None else capacity.requests_per_second * 60
    return most_requests, most_requests / 2 if target is None else target.value


def _largest_load(deployment: Deployment, variant: Variant) -> float:
    """Return a variant's share of the most requests a minute that the endpoint scales to.

    A shadow gets a copy of all of them.
    """
    _, target = _capacity(deployment, deployment.own)
    largest = target * max(1, most(deployment.own)) / _share(deployment, deployment.own)
    return largest * _share(deployment, variant)


def _share_of_largest(minute: int) -> float:
    clock = (BEGINS_AT + minute) % MINUTES
    wave = 0.5 - 0.5 * math.cos(2 * math.pi * (clock - 3.5 * 60) / MINUTES)
    spike = 1.75 * min(1.0, (clock - SPIKE_AT) / 8) if SPIKE_AT <= clock < BEGINS_AT else 0.0
    return (0.12 + 0.72 * wave) * (1 + spike)


def _share(deployment: Deployment, variant: Variant) -> float:
    weights = sum(variant.weight for variant in deployment.variants if variant.role == "variant")
    return 1.0 if variant.role == "shadow" or variant.weight == 0 else variant.weight / weights


def _instance_counts(loads: Sequence[float], target: float, variant: Variant) -> list[int]:
    """Return the counts of target tracking: soon out, late in."""
    low, high = max(1, fewest(variant)), max(1, most(variant))
    wanted = [min(high, max(low, math.ceil(load / target))) for load in loads]
    return [
        max(wanted[max(0, minute - SHRINKS_AFTER) : max(1, minute - GROWS_AFTER + 1)])
        for minute in range(len(wanted))
    ]


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A metric's values in one minute; `latency` spreads them like latencies."""

    count: float
    total: float
    low: float
    high: float
    latency: Minute | None = None

    def percentile(self, percent: float) -> float:
        """Return a value between the lowest and the highest, or as latencies lie."""
        if self.latency is None:
            return self.low + (self.high - self.low) * percent / 100
        return latency_ms(self.latency, percent) * 1000


def latency_ms(minute: Minute, percent: float) -> float:
    """Return a percentile of the model's latency: it grows with the load, and a rollout is cold."""
    pairs = itertools.pairwise(PERCENTILES)
    (low, at_low), (high, at_high) = next(pair for pair in pairs if percent <= pair[1][0])
    share = at_low + (at_high - at_low) * (percent - low) / (high - low)
    busy = share * (1 + 0.55 * minute.busy**2) * (1 + 3 * max(0.0, minute.busy - 1))
    version = 1.0 if minute.since_rollout is None else 1.35 if minute.cold else 0.9
    return minute.expected_ms * busy * version * (1 + 0.05 * minute.noise * percent / 100)


def sample(name: str, minute: Minute) -> Sample | None:
    """Return a metric's values in a minute; None where it has none."""
    if name not in SAMPLES:
        return None
    kind, value = SAMPLES[name]
    one, requests, reported = value(minute), minute.requests, minute.reported
    low, high = one, one
    match kind:
        case "latency":
            count, total, low, high = requests, requests * one, one / 3, one * 3
        case "request":
            count, total = requests, requests * one
        case "share":
            count, total, low, high = requests, round(requests * one), 0, 1
        case "instance":
            count, total, low, high = reported, reported * one, one * 0.97, one * 1.03
        case "queue count":
            count, total, low, high = 1, round(requests * one), 0, 1
        case "load":
            loads = minute.models * minute.instances if minute.misses else 0
            count, total, low, high = loads, loads * one, one * 0.8, one * 1.3
        case _:  # queue
            count, total = 1, one
    latency = minute if kind == "latency" else None
    return Sample(count=count, total=total, low=low, high=high, latency=latency) if count else None


def _client_errors(minute: Minute) -> float:
    return 0.003 + 0.0015 * minute.noise


def _server_errors(minute: Minute) -> float:
    return 0.002 * minute.cold + 0.2 * max(0.0, minute.busy - 1)


def _by_version(before: float, after: float) -> Callable[[Minute], float]:
    return lambda minute: before if minute.since_rollout is None else after


def _load_time(milliseconds: float) -> Callable[[Minute], float]:
    return lambda minute: milliseconds * 1000 * (1 + 0.1 * minute.noise)


def _backlog(minute: Minute) -> float:
    return minute.requests * (0.05 + 0.5 * minute.busy**3)


def _queue_seconds(minute: Minute) -> float:
    return 2 + 55 * minute.busy**3


SAMPLES: dict[str, tuple[str, Callable[[Minute], float]]] = {
    "Invocations": ("request", lambda m: 1.0),
    "InvocationsPerInstance": ("request", lambda m: 1 / m.instances),
    "ModelLatency": ("latency", lambda m: latency_ms(m, 58) * 1000),
    "OverheadLatency": ("request", lambda m: (2.1 + 0.3 * m.noise + 2 * m.busy) * 1000),
    "Invocation4XXErrors": ("share", _client_errors),
    "Invocation5XXErrors": ("share", _server_errors),
    "InvocationModelErrors": ("share", lambda m: _client_errors(m) + _server_errors(m)),
    "ConcurrentRequestsPerModel": ("instance", lambda m: 8 * m.busy),
    "CPUUtilization": ("instance", lambda m: m.vcpus * min(100.0, 9 + 38 * m.busy + 2 * m.noise)),
    "MemoryUtilization": ("instance", lambda m: 31 + 4 * m.busy),
    "DiskUtilization": ("instance", _by_version(18.0, 19.5)),
    "GPUUtilization": ("instance", lambda m: m.gpus * min(97.0, 86 * m.busy + 2 * abs(m.noise))),
    "GPUMemoryUtilization": ("instance", lambda m: m.gpus * _by_version(38.0, 43.0)(m)),
    "LoadedModelCount": ("instance", lambda m: m.models * (1 - m.misses)),
    "ModelCacheHit": ("share", lambda m: 1 - m.misses),
    "ModelLoadingWaitTime": ("load", _load_time(6200)),
    "ModelDownloadingTime": ("load", _load_time(3600)),
    "ModelLoadingTime": ("load", _load_time(2500)),
    "ApproximateBacklogSize": ("queue", _backlog),
    "ApproximateBacklogSizePerInstance": ("queue", lambda m: _backlog(m) / m.instances),
    "ApproximateAgeOfOldestRequest": ("queue", _queue_seconds),
    "HasBacklogWithoutCapacity": ("queue", lambda m: 0.0),
    "InvocationsProcessed": ("queue count", lambda m: 0.997),
    "InvocationFailures": ("queue count", lambda m: 0.003),
    "ExpiredRequests": ("queue count", lambda m: 0.0),
    "TimeInBacklog": ("queue", lambda m: _queue_seconds(m) * 0.6e6),
    "TotalProcessingTime": ("queue", lambda m: _queue_seconds(m) * 0.6e6 + m.expected_ms * 1000),
}
"""Kind and value of each metric that a day has; of others it has none."""


@dataclass(frozen=True, kw_only=True)
class SyntheticMetrics:
    """Metrics of endpoints whose days begin at `start`, in seconds since the epoch."""

    start: float
    days: Mapping[Key, tuple[Minute, ...]]
    _series: dict[tuple[Any, ...], Series] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, deployments: Sequence[Deployment], start: float) -> SyntheticMetrics:
        """Return the metrics of every variant."""
        days: dict[Key, tuple[Minute, ...]] = {}
        for deployment in deployments:
            for variant in deployment.variants:
                day = variant_day(deployment, variant)
                days |= dict.fromkeys(_metric_keys(deployment, variant), day)
        return cls(start=start, days=days)

    def all_metrics(self) -> list[Found]:
        """Return every metric."""
        return [
            Found(namespace=space, name=name, dimensions=dict(of)) for space, name, of in self.days
        ]

    def read(self, question: Question, period: float) -> Series:
        """Return one statistic over periods; empty for a metric that nobody publishes."""
        dimensions = tuple(sorted(question.dimensions.items()))
        metric: Key = (question.namespace, question.name, dimensions)
        width = max(1, round(period / PERIOD))
        key = (*metric, question.statistic, width)
        if key not in self._series:
            # Widgets and alarms of one dashboard ask for the same statistics many times.
            self._series[key] = self._read(metric, question.statistic, width)
        return self._series[key]

    def _read(self, metric: Key, name: str, width: int) -> Series:
        day = self.days.get(metric, ())
        series: dict[float, float] = {}
        for begin in range(0, len(day), width):
            values = [sample(metric[1], minute) for minute in day[begin : begin + width]]
            samples = [value for value in values if value is not None]
            if samples:
                series[self.start + begin * PERIOD] = statistic(name, samples)
        return series


def statistic(name: str, samples: Sequence[Sample]) -> float:
    """Return a statistic of samples; a percentile of several is the mean of theirs."""
    if name.startswith("p"):
        return statistics.fmean(sample.percentile(float(name[1:])) for sample in samples)
    count, total = sum(s.count for s in samples), sum(s.total for s in samples)
    if name == "Maximum":
        return max(sample.high for sample in samples)
    if name == "Minimum":
        return min(sample.low for sample in samples)
    return {"Sum": total, "SampleCount": count, "Average": total / count}[name]


def _metric_keys(deployment: Deployment, variant: Variant) -> Iterator[Key]:
    endpoint = ("EndpointName", names.endpoint_name(deployment.environment, deployment.name))
    for namespace in (INVOCATIONS, HOST):
        for name, facts in METRICS[namespace].items():
            if _has(name, facts, deployment, variant):
                of_variant = ("VariantName",) in [dimensions[1:] for dimensions in facts.dimensions]
                more = (("VariantName", variant.name),) if of_variant else ()
                yield namespace, name, (endpoint, *more)


def _has(name: str, facts: MetricFacts, deployment: Deployment, variant: Variant) -> bool:
    queued = deployment.endpoint.asynchronous is not None
    if name.startswith("GPU") and not variant.instance_type.is_gpu:
        return False
    return {
        "any": True,
        "real-time": not queued,
        "asynchronous": queued,
        "serverless": False,
        "multi-model": deployment.multi_model,
    }[facts.kind]
