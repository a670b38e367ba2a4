"""The instance counts of an endpoint's variants that move, and by what.

Source: SageMaker developer guide, "Autoscale an asynchronous endpoint".
"""

from __future__ import annotations

from collections.abc import Iterator

from onboarding import names
from onboarding.deployment import VARIANT, Deployment, Variant
from onboarding.metrics import (
    FromZero,
    Metric,
    ScaledCount,
    ScheduledBounds,
    TargetTracking,
    VariantMetrics,
)
from stacks.scaling.targets import (
    TargetValue,
    backlog_target,
    cpu_target,
    fewest,
    gpu_target,
    invocations_target,
    scaled_variants,
    variant_id,
)

TARGET_ID = "ScalableTarget"


def scaled_counts(deployment: Deployment) -> tuple[ScaledCount, ...]:
    """Return the counts of production variants that scale, and those that are held beside them.

    A shadow follows the count it began with. An update of an endpoint where one variant scales
    retains every count, so that a changed fixed one would never take: the bounds of its target,
    which are that count, bring it there, under the id that the target has once the variant scales.
    """
    scaled = scaled_variants(deployment)
    held = [
        variant
        for variant in (deployment.variants if scaled else ())
        if variant.role == "variant" and variant not in scaled
    ]
    return tuple(_count(deployment, variant, variant in scaled) for variant in (*held, *scaled))


def variant_resource(endpoint: str, variant: str) -> str:
    """Return what Application Auto Scaling calls a variant of an endpoint."""
    return f"endpoint/{endpoint}/variant/{variant}"


def _count(deployment: Deployment, variant: Variant, is_scaled: bool) -> ScaledCount:
    scaling = variant.scaling
    endpoint = names.endpoint_name(deployment.environment, deployment.name)
    tracking = _queue_policies if deployment.endpoint.asynchronous else _policies
    return ScaledCount(
        id=variant_id(variant, TARGET_ID),
        name=endpoint if variant.name == VARIANT else f"{endpoint}-{variant.name}",
        resource_id=variant_resource(endpoint, variant.name),
        dimension="variant:DesiredInstanceCount",
        least=scaling.min,
        most=scaling.max,
        # Both bounds always: AWS refuses a floor above the ceiling that an earlier action left.
        schedule=tuple(
            ScheduledBounds(
                schedule=floor.schedule,
                timezone=floor.timezone,
                least=floor.min,
                most=scaling.max if floor.max is None else floor.max,
            )
            for floor in scaling.schedule
        ),
        tracking=tuple(tracking(deployment, variant, endpoint)) if is_scaled else (),
        from_zero=_from_zero(deployment, variant, endpoint) if is_scaled else None,
    )


def _policies(deployment: Deployment, variant: Variant, endpoint: str) -> Iterator[TargetTracking]:
    predefined = "SageMakerVariantInvocationsPerInstance"
    of = VariantMetrics(endpoint, variant.name)
    for name, target, metric in (
        ("invocations", invocations_target(deployment, variant), predefined),
        ("gpu", gpu_target(deployment, variant), of.host("GPUUtilization", "Average")),
        ("cpu", cpu_target(variant), of.host("CPUUtilization", "Average")),
    ):
        if target is not None:
            yield _tracking(variant, name, metric, target)


def _queue_policies(
    deployment: Deployment, variant: Variant, endpoint: str
) -> Iterator[TargetTracking]:
    """The queue alone moves the count: a GPU that works through it is full whatever its length."""
    target = backlog_target(deployment, variant)
    if target is not None:
        name = "ApproximateBacklogSizePerInstance"
        metric = VariantMetrics(endpoint, variant.name).queue(name, "Average")
        yield _tracking(variant, "backlog", metric, target)


def _from_zero(deployment: Deployment, variant: Variant, endpoint: str) -> FromZero | None:
    """At zero instances HasBacklogWithoutCapacity alone speaks."""
    if deployment.endpoint.asynchronous is None or fewest(variant) > 0:
        return None
    # The variant stands last: alarms of all endpoints differ by name.
    suffix = "" if variant.name == VARIANT else f"-{variant.name}"
    of = VariantMetrics(endpoint, variant.name)
    return FromZero(
        policy_id=variant_id(variant, "FromZeroPolicy"),
        alarm_id=variant_id(variant, "FromZeroAlarm"),
        alarm_name=f"{endpoint}-from-zero{suffix}",
        unit="instance",
        fault="a request waits and there is no instance",
        metric=of.queue("HasBacklogWithoutCapacity", "Average"),
        periods=2,
        missing="missing",
        cooldown_seconds=300,
    )


def _tracking(
    variant: Variant, name: str, metric: str | Metric, target: TargetValue
) -> TargetTracking:
    return TargetTracking(
        id=variant_id(variant, f"{name.capitalize()}Policy"),
        name=name,
        metric=metric,
        value=target.value,
        derivation=target.derivation,
        scale_out_seconds=variant.scaling.scale_out_cooldown_seconds,
        scale_in_seconds=variant.scaling.scale_in_cooldown_seconds,
    )
