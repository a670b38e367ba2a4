"""Alarms on latency, load and queues: over what was promised, and over what was measured."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from onboarding.deployment import Deployment, Variant
from onboarding.metrics import INVOCATIONS
from stacks.alarms.alarm import (
    AT_LEAST,
    MICROSECONDS_A_MILLISECOND,
    Alarm,
    Computed,
    Metric,
    variant_metric,
)
from stacks.capacity.variant import drift_limit, variant_capacity
from stacks.rollout import ready_seconds
from stacks.scaling.resources import endpoint_dimensions
from stacks.scaling.targets import SECONDS_A_MINUTE, invocations_target, most, scaled_variants

FEW_REQUESTS = 300
"""A minute, below which p99 is one of the slowest three: chance would take sound versions back."""
COUNT = "FLOOR(requests / each + 0.5)"
"""Instances: every request adds 1 to the one metric, and 1/instances to the other."""
SCALING_SECONDS = 300
"""Until scaling has seen the backlog and asked for an instance."""


def latency_alarms(deployment: Deployment, variant: Variant) -> Iterator[Alarm]:
    """Yield the alarm of the SLO, and an early warning below it."""
    latency = partial(variant_metric, deployment, variant, "ModelLatency")
    slo, limit = deployment.endpoint.latency_slo_ms, drift_limit(deployment, variant)
    if slo is not None:
        yield Alarm(
            part="Latency",
            kind="latency",
            variant=variant,
            watched=Computed(
                expression=f"IF(requests >= {FEW_REQUESTS}, p99, p95)",
                label="model latency, microseconds: p99, of few requests p95",
                metrics={
                    "requests": latency("SampleCount"),
                    "p99": latency("p99"),
                    "p95": latency("p95"),
                },
            ),
            threshold=slo * MICROSECONDS_A_MILLISECOND,
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
            watched=latency("p99"),
            threshold=limit.milliseconds * MICROSECONDS_A_MILLISECOND,
            points=10,
            periods=15,
            explanation=f"p99 model latency is over {limit.milliseconds} ms: {limit.derivation}",
        )


def load_alarms(deployment: Deployment, variant: Variant) -> Iterator[Alarm]:
    """None for a queue, which has a length instead, nor for a shadow, whose count nothing moves."""
    if deployment.endpoint.asynchronous is not None or variant.role == "shadow":
        return
    each = variant_metric(deployment, variant, "InvocationsPerInstance", "Sum")
    alarm = partial(Alarm, variant=variant, points=10, periods=15)
    capacity = variant_capacity(deployment, variant)
    if capacity is not None:
        yield alarm(
            part="Saturation",
            kind="saturation",
            watched=each,
            threshold=measured_per_minute(capacity.requests_per_second),
            explanation=(
                "an instance has more requests than were measured within the SLO:"
                f" {capacity.derivation} x {SECONDS_A_MINUTE} s"
            ),
        )
    target, count = invocations_target(deployment, variant), most(variant)
    if target is not None and variant in scaled_variants(deployment):
        requests = variant_metric(deployment, variant, "Invocations", "Sum")
        # At its most instances alone a variant may be well.
        yield alarm(
            part="Ceiling",
            kind="ceiling",
            watched=Computed(
                expression=f"IF(each > {target.value:.10g}, {COUNT}, 0)",
                label="instances, while each has more requests than scaling aims at",
                metrics={"requests": requests, "each": each},
            ),
            threshold=count,
            comparison=AT_LEAST,
            explanation=(
                f"all {count} instances that it may have are there, each with over the"
                f" {target.value:.10g} requests a minute that scaling aims at: raise scaling.max"
            ),
        )


def measured_per_minute(requests_per_second: float) -> float:
    """Requests a minute, to a tenth."""
    return round(requests_per_second * SECONDS_A_MINUTE, 1)


def queue_alarms(deployment: Deployment) -> Iterator[Alarm]:
    """Yield the alarm that the oldest request waits longer than one more instance takes to come.

    None for an endpoint that answers at once.
    """
    if deployment.endpoint.asynchronous is None:
        return
    limit = longest_wait_seconds(deployment)
    yield Alarm(
        part="OldestRequest",
        kind="oldest-request",
        variant=None,
        watched=Metric(
            namespace=INVOCATIONS,
            name="ApproximateAgeOfOldestRequest",
            dimensions=endpoint_dimensions(deployment),
            statistic="Maximum",
        ),
        threshold=limit,
        explanation=(
            f"the oldest request has waited over {limit} s: one more instance takes"
            f" {ready_seconds(deployment, deployment.own)} s at most, and scaling {SCALING_SECONDS}"
            " s to ask for it"
        ),
    )


def longest_wait_seconds(deployment: Deployment) -> int:
    """What scaling out may take, whole."""
    return SCALING_SECONDS + ready_seconds(deployment, deployment.own)
