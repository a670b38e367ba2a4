"""Alarms on how long a model takes: over what was promised, and over what was measured."""

from __future__ import annotations

from collections.abc import Iterator

from onboarding.deployment import Deployment, Variant
from stacks.alarms.alarm import (
    INVOCATIONS,
    MICROSECONDS_A_MILLISECOND,
    Alarm,
    Computed,
    Condition,
    Metric,
)
from stacks.capacity.latency import drift_limit
from stacks.scaling.properties import dimensions

FEW_REQUESTS = 300
"""A minute, below which p99 is one of the slowest three: chance alone would take sound versions
back.
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
            told=f"p99 model latency is over the SLO of {slo:g} ms; p95 in a minute of fewer than {FEW_REQUESTS} requests",
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
            told=f"p99 model latency is over {limit.milliseconds} ms: {limit.derivation}",
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
