"""Alarms on load that scaling does not take away: more than was measured, and a count that can rise
no further.
"""

from __future__ import annotations

from collections.abc import Iterator

from onboarding.deployment import Deployment, Variant
from stacks.alarms.alarm import AT_LEAST, INVOCATIONS, Alarm, Computed, Condition, Metric
from stacks.capacity.variant import variant_capacity
from stacks.scaling.properties import dimensions
from stacks.scaling.targets import SECONDS_A_MINUTE, invocations_target
from stacks.scaling.variants import most, scaled_variants

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
            told=f"an instance has more requests than were measured within the SLO: {capacity.derivation} x {SECONDS_A_MINUTE} s",
        )
    target = invocations_target(deployment, variant)
    if target is not None and variant in scaled_variants(deployment):
        yield _ceiling(deployment, variant, target.value)


def measured_per_minute(requests_per_second: float) -> float:
    """Requests a minute, to a tenth."""
    return round(requests_per_second * SECONDS_A_MINUTE, 1)


def _ceiling(deployment: Deployment, variant: Variant, target: float) -> Alarm:
    """At its most instances alone a variant may be well: it would have more, if there were any to
    have.
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
        told=f"all {count} instances that it may have are there, each with over the {target:.10g} requests a minute that scaling "
        "aims at: raise scaling.max",
    )


def _metric(deployment: Deployment, variant: Variant, name: str) -> Metric:
    return Metric(
        namespace=INVOCATIONS,
        name=name,
        dimensions=dimensions(deployment, variant),
        statistic="Sum",
    )
