"""Alarms on how long a model takes: over what was promised, and over what was measured."""

from __future__ import annotations

from collections.abc import Iterator

from onboarding import names
from onboarding.deployment import Deployment, Variant
from stacks.alarms.alarm import (
    AT_LEAST,
    INVOCATIONS,
    MICROSECONDS_A_MILLISECOND,
    Alarm,
    Computed,
    Condition,
    Metric,
)
from stacks.capacity.variant import drift_limit, variant_capacity
from stacks.rollout import ready_seconds
from stacks.scaling.resources import dimensions
from stacks.scaling.targets import SECONDS_A_MINUTE, invocations_target, most, scaled_variants

FEW_REQUESTS = 300
"""A minute, below which p99 is one of the slowest three.

Chance alone would take sound versions back.
"""


def latency_alarms(deployment: Deployment, variant: Variant) -> Iterator[Alarm]:
    """The SLO, and an early warning below it."""
    slo, limit = deployment.endpoint.latency_slo_ms, drift_limit(deployment, variant)
    if slo is not None:
        yield Alarm(
            part="Latency",
            kind="latency",
            variant=variant,
            watched=_against_slo(deployment, variant),
            condition=Condition(threshold=slo * MICROSECONDS_A_MILLISECOND),
            explanation=(
                f"p99 model latency is over the SLO of {slo:g} ms; p95 in a minute of fewer than"
                f" {FEW_REQUESTS} requests"
            ),
            rolls_back=variant.role != "shadow",
        )
    if limit is not None:
        yield Alarm(
            part="Drift",
            kind="drift",
            variant=variant,
            watched=_latency(deployment, variant, "p99"),
            condition=Condition(
                threshold=limit.milliseconds * MICROSECONDS_A_MILLISECOND, points=10, periods=15
            ),
            explanation=f"p99 model latency is over {limit.milliseconds} ms: {limit.derivation}",
        )


def _against_slo(deployment: Deployment, variant: Variant) -> Computed:
    return Computed(
        expression=f"IF(requests >= {FEW_REQUESTS}, p99, p95)",
        label="model latency, microseconds: p99, of few requests p95",
        metrics={
            "requests": _latency(deployment, variant, "SampleCount"),
            "p99": _latency(deployment, variant, "p99"),
            "p95": _latency(deployment, variant, "p95"),
        },
    )


def _latency(deployment: Deployment, variant: Variant, statistic: str) -> Metric:
    of = dimensions(deployment, variant)
    return Metric(namespace=INVOCATIONS, name="ModelLatency", dimensions=of, statistic=statistic)


COUNT = "FLOOR(requests / each + 0.5)"
"""Instances: every request adds 1 to the one metric, and 1/instances to the other."""


def load_alarms(deployment: Deployment, variant: Variant) -> Iterator[Alarm]:
    """None for a queue, which has a length instead, nor for a shadow, whose count nothing moves."""
    if deployment.endpoint.asynchronous is not None or variant.role == "shadow":
        return
    capacity = variant_capacity(deployment, variant)
    if capacity is not None:
        yield Alarm(
            part="Saturation",
            kind="saturation",
            variant=variant,
            watched=_metric(deployment, variant, "InvocationsPerInstance"),
            condition=Condition(
                threshold=measured_per_minute(capacity.requests_per_second), points=10, periods=15
            ),
            explanation=(
                "an instance has more requests than were measured within the SLO:"
                f" {capacity.derivation} x {SECONDS_A_MINUTE} s"
            ),
        )
    target = invocations_target(deployment, variant)
    if target is not None and variant in scaled_variants(deployment):
        yield _ceiling(deployment, variant, target.value)


def measured_per_minute(requests_per_second: float) -> float:
    """Requests a minute, to a tenth."""
    return round(requests_per_second * SECONDS_A_MINUTE, 1)


def _ceiling(deployment: Deployment, variant: Variant, target: float) -> Alarm:
    """At its most instances alone a variant may be well.

    It would have more, if there were any to have.
    """
    count = most(variant)
    watched = Computed(
        expression=f"IF(each > {target:.10g}, {COUNT}, 0)",
        label="instances, while each has more requests than scaling aims at",
        metrics={
            "requests": _metric(deployment, variant, "Invocations"),
            "each": _metric(deployment, variant, "InvocationsPerInstance"),
        },
    )
    return Alarm(
        part="Ceiling",
        kind="ceiling",
        variant=variant,
        watched=watched,
        condition=Condition(threshold=count, comparison=AT_LEAST, points=10, periods=15),
        explanation=(
            f"all {count} instances that it may have are there, each with over the {target:.10g}"
            " requests a minute that scaling aims at: raise scaling.max"
        ),
    )


def _metric(deployment: Deployment, variant: Variant, name: str) -> Metric:
    return Metric(
        namespace=INVOCATIONS,
        name=name,
        dimensions=dimensions(deployment, variant),
        statistic="Sum",
    )


SCALING_SECONDS = 300
"""Until scaling has seen the backlog and asked for an instance."""


def queue_alarms(deployment: Deployment) -> Iterator[Alarm]:
    """The oldest request waits longer than one more instance takes to come.

    None for an endpoint that answers at once.
    """
    if deployment.endpoint.asynchronous is None:
        return
    limit = longest_wait_seconds(deployment)
    endpoint = names.endpoint_name(deployment.environment, deployment.name)
    of = [{"Name": "EndpointName", "Value": endpoint}]
    yield Alarm(
        part="OldestRequest",
        kind="oldest-request",
        variant=None,
        watched=Metric(
            namespace=INVOCATIONS,
            name="ApproximateAgeOfOldestRequest",
            dimensions=of,
            statistic="Maximum",
        ),
        condition=Condition(threshold=limit),
        explanation=(
            f"the oldest request has waited over {limit} s: one more instance takes"
            f" {ready_seconds(deployment, deployment.own)} s at most, and scaling {SCALING_SECONDS}"
            " s to ask for it"
        ),
    )


def longest_wait_seconds(deployment: Deployment) -> int:
    """What scaling out may take, whole."""
    return SCALING_SECONDS + ready_seconds(deployment, deployment.own)
