"""Alarms on how long a model takes: over what was promised, and over what was measured."""

from __future__ import annotations

from collections.abc import Iterator

from onboarding.deployment import Deployment, Variant
from stacks.alarms.alarm import INVOCATIONS, MICROSECONDS_A_MILLISECOND, Alarm, Condition, Metric
from stacks.expected_latency import drift_limit
from stacks.scaling_properties import dimensions


def latency_alarms(deployment: Deployment, variant: Variant) -> Iterator[Alarm]:
    """The SLO, and an early warning below it."""
    slo, limit = deployment.endpoint.latency_slo_ms, drift_limit(deployment, variant)
    if slo is not None:
        yield Alarm(
            part="Latency",
            kind="latency",
            variant=variant,
            watched=_p99(deployment, variant),
            condition=Condition(threshold=slo * MICROSECONDS_A_MILLISECOND),
            told=f"p99 model latency is over the SLO of {slo:g} ms",
            rolls_back=variant.role != "shadow",
        )
    if limit is not None:
        yield Alarm(
            part="Drift",
            kind="drift",
            variant=variant,
            watched=_p99(deployment, variant),
            condition=Condition(threshold=limit.milliseconds * MICROSECONDS_A_MILLISECOND, points=10, periods=15),
            told=f"p99 model latency is over {limit.milliseconds} ms: {limit.derivation}",
        )


def _p99(deployment: Deployment, variant: Variant) -> Metric:
    return Metric(namespace=INVOCATIONS, name="ModelLatency", dimensions=dimensions(deployment, variant), statistic="p99")
