"""The counts that Application Auto Scaling moves, and the values that it holds metrics at.

Each value has its derivation. Sources: SageMaker developer guide, "Autoscale an asynchronous
endpoint"; AWS's notebook scale_down_to_zero of sagemaker-genai-hosting-examples.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal

from onboarding import names
from onboarding.deployment import VARIANT, Deployment, Pool, Variant
from onboarding.metrics import (
    Dimension,
    FromZero,
    Metric,
    ScaledCount,
    ScheduledBounds,
    TargetTracking,
    VariantMetrics,
)
from onboarding.text_generation.generation_deployment import GenerationDeployment
from stacks import generation_capacity as sizes
from stacks.engine_capacity import gpus_used, measurement_text, served_capacity, variant_capacity

SECONDS_A_MINUTE = 60
LEAST_TARGET = 1.0
LOWEST_GPU_PERCENT, HIGHEST_GPU_PERCENT = 1.0, 95.0
"""A target above zero, on a GPU that is used; a metric that ends at 100 must be able to pass it."""
TARGET_SHARE = 0.7
"""Of the requests that a copy answers at once within the SLO: what is above comes while one more
copy starts.
"""
TARGET_ID = "ScalableTarget"
INSTANCES: Dimension = "variant:DesiredInstanceCount"
COPIES: Dimension = "inference-component:DesiredCopyCount"
UNMEASURED = "one request at once of each copy, since its capacity is not known"
COPY_INVOCATIONS = "SageMakerInferenceComponentInvocationsPerCopy"
COPY_CONCURRENCY = "SageMakerInferenceComponentConcurrentRequestsPerCopyHighResolution"


@dataclass(frozen=True, kw_only=True)
class TargetValue:
    """A value of a metric, and how it was derived."""

    value: float
    derivation: str


def minute_target(
    deployment: Deployment, variant: Variant, unit: str = "invocations a minute"
) -> TargetValue | None:
    """Return a share of what one instance answers in a minute; None when that is not measured.

    So many invocations come to it, or wait for it in a queue. To a tenth, downward: rounding never
    promises more than was measured.
    """
    capacity, safety = variant_capacity(deployment, variant), variant.scaling.safety_factor
    if capacity is None:
        return None
    share = _floored(capacity.requests_per_second, SECONDS_A_MINUTE, safety)
    value = max(LEAST_TARGET, share)
    raised = f", raised to {value:g}, the least" if share < LEAST_TARGET else ""
    explanation = (
        f"{capacity.derivation} x {SECONDS_A_MINUTE} s x safety factor {safety:g} = {share:.10g}"
        f" {unit}{raised}"
    )
    return TargetValue(value=value, derivation=explanation)


def gpu_target(deployment: Deployment, variant: Variant) -> TargetValue | None:
    """Summed percent of all used GPUs at the saturation point; the metric counts 100 for each.

    None on a CPU. Of several instance types the least counts: the metric is a mean over instances
    of every type.
    """
    if not all(pool.instance_type.is_gpu for pool in variant.pools):
        return None
    targets = []
    for pool in variant.pools:
        percent, origin = _saturation_percent(deployment, variant, pool)
        gpus, instance = gpus_used(variant, pool.instance_type), pool.instance_type
        which = f", which the Python server uses of the {instance.gpu_count}"
        explanation = (
            f"{percent:g} % ({origin}) x {gpus} GPU{'' if gpus == instance.gpu_count else which}"
            f" of {instance.name}"
        )
        targets.append(TargetValue(value=round(percent * gpus, 1), derivation=explanation))
    return min(targets, key=lambda target: target.value)


def concurrency_target(deployment: GenerationDeployment) -> TargetValue:
    """Return the concurrent requests that scaling holds each copy at, to a tenth, downward."""
    known = sizes.concurrency(deployment)
    share = _floored(known.requests, TARGET_SHARE)
    value = max(LEAST_TARGET, share)
    raised = f", raised to = {value:g} requests" if share < LEAST_TARGET else ""
    derivation = (
        f"{known.requests} requests at once within the SLO ({known.origin}) x {TARGET_SHARE:g} = "
        f"{share:g} concurrent requests of each copy{raised}"
    )
    return TargetValue(value=value, derivation=derivation)


def _floored(*factors: float) -> float:
    """Return a product to a tenth, downward."""
    exact = math.prod(Decimal(str(factor)) for factor in factors)
    return float(Decimal(exact).quantize(Decimal("0.1"), rounding=ROUND_FLOOR))


def _saturation_percent(deployment: Deployment, variant: Variant, pool: Pool) -> tuple[float, str]:
    """The utilization at which an instance was full, and its origin.

    The least measured of its models, or else what the YAML says.
    """
    served = [served_capacity(deployment, target) for target in pool.targets]
    measured = [
        (capacity.gpu_utilization_percent, measurement_text(capacity))
        for capacity in served
        if capacity is not None and capacity.gpu_utilization_percent is not None
    ]
    given, key = float(variant.scaling.gpu_utilization_percent), "scaling.gpu_utilization_percent"
    if not measured or len(measured) < len(served):
        return given, key
    percent, explanation = min(measured, key=lambda pair: pair[0])
    if percent < LOWEST_GPU_PERCENT:
        return given, f"{key}, as the GPU rested: {explanation}"
    capped = f", of {percent:g} %" if percent > HIGHEST_GPU_PERCENT else ""
    return min(percent, HIGHEST_GPU_PERCENT), f"measured at the knee{capped}: {explanation}"


def scaled_variants(deployment: Deployment) -> tuple[Variant, ...]:
    """Variants whose count moves, by load or by the clock.

    A fixed count needs no target, which would pin the instance type.
    """
    return tuple(
        variant
        for variant in deployment.variants
        if variant.role == "variant"
        and (variant.scaling.max > variant.scaling.min or variant.scaling.schedule)
    )


def named_id(variant: str, part: str) -> str:
    """Return the logical id of a part of a variant: the own one's is the part alone.

    Others end in their name. Names that PascalCase cannot tell apart (`a-1` and `a1`, `aB` and
    `a-b`) get six digits of their digest.
    """
    if variant == VARIANT:
        return part
    words = variant.split("-")
    pascal = "".join(word[:1].upper() + word[1:] for word in words)
    is_plain = variant == variant.lower() and all(word[:1].isalpha() for word in words)
    digest = "" if is_plain else hashlib.sha256(variant.encode()).hexdigest()[:6]
    return part + pascal + digest


def most(variant: Variant) -> int:
    """The highest ceiling that a variant ever has; a shadow keeps the count that it begins with."""
    if variant.role == "shadow":
        return variant.scaling.min
    ceilings = (floor.max for floor in variant.scaling.schedule)
    return max([variant.scaling.max, *(ceiling for ceiling in ceilings if ceiling is not None)])


def scaled_counts(deployment: Deployment | GenerationDeployment) -> tuple[ScaledCount, ...]:
    """Return the counts of production variants that scale, and those that are held beside them.

    A shadow follows the count it began with. An update of an endpoint where one variant scales
    retains every count, so that a changed fixed one would never take: the bounds of its target,
    which are that count, bring it there, under the id that the target has once the variant scales.
    Of a text generator the copies; none where they are fixed.
    """
    endpoint = names.endpoint_name(deployment.environment, deployment.name)
    if isinstance(deployment, GenerationDeployment):
        return (_copies(deployment, endpoint),) if sizes.scales(deployment) else ()
    scaled = scaled_variants(deployment)
    held = [
        variant
        for variant in (deployment.variants if scaled else ())
        if variant.role == "variant" and variant not in scaled
    ]
    return (
        *(_count(variant, endpoint) for variant in held),
        *(_count(variant, endpoint, deployment) for variant in scaled),
    )


def _count(variant: Variant, endpoint: str, moved: Deployment | None = None) -> ScaledCount:
    """Return the count of a variant; `moved` is the deployment where policies move it."""
    scaling = variant.scaling
    resource_id, dimension = f"endpoint/{endpoint}/variant/{variant.name}", INSTANCES
    if moved is not None and moved.is_component:
        resource_id, dimension = f"inference-component/{endpoint}", COPIES
    return ScaledCount(
        id=named_id(variant.name, TARGET_ID),
        name=endpoint if variant.name == VARIANT else f"{endpoint}-{variant.name}",
        resource_id=resource_id,
        dimension=dimension,
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
        tracking=() if moved is None else tuple(_policies(moved, variant, endpoint)),
        from_zero=None if moved is None else _from_zero(moved, variant, endpoint),
    )


def _policies(deployment: Deployment, variant: Variant, endpoint: str) -> Iterator[TargetTracking]:
    """A queue alone moves its count: a GPU that works through it is full whatever its length."""
    of = VariantMetrics(endpoint, variant.name)
    metrics: dict[str, tuple[TargetValue | None, str | Metric]]
    if deployment.endpoint.asynchronous is not None:
        target = minute_target(deployment, variant, "requests waiting for each instance")
        metrics = {"backlog": (target, of.queue("ApproximateBacklogSizePerInstance", "Average"))}
    elif deployment.is_component:
        target = minute_target(deployment, variant)
        metrics = {"invocations": (target, COPY_INVOCATIONS)}
        if target is None:
            # Without a policy nothing would scale in.
            one = TargetValue(value=LEAST_TARGET, derivation=UNMEASURED)
            metrics = {"concurrency": (one, COPY_CONCURRENCY)}
    else:
        predefined = "SageMakerVariantInvocationsPerInstance"
        metrics = {
            "invocations": (minute_target(deployment, variant), predefined),
            "gpu": (gpu_target(deployment, variant), of.host("GPUUtilization", "Average")),
        }
    for name, (target, metric) in metrics.items():
        if target is not None:
            yield TargetTracking(
                id=named_id(variant.name, f"{name.capitalize()}Policy"),
                name=name,
                metric=metric,
                value=target.value,
                derivation=target.derivation,
                scale_out_seconds=variant.scaling.scale_out_cooldown_seconds,
                scale_in_seconds=variant.scaling.scale_in_cooldown_seconds,
            )


def _from_zero(deployment: Deployment, variant: Variant, endpoint: str) -> FromZero | None:
    """At zero instances of a queue HasBacklogWithoutCapacity alone speaks."""
    if deployment.is_component:
        return _first_copy(endpoint)
    if deployment.endpoint.asynchronous is None or variant.scaling.fewest > 0:
        return None
    # The variant stands last: alarms of all endpoints differ by name.
    suffix = "" if variant.name == VARIANT else f"-{variant.name}"
    of = VariantMetrics(endpoint, variant.name)
    return FromZero(
        policy_id=named_id(variant.name, "FromZeroPolicy"),
        alarm_id=named_id(variant.name, "FromZeroAlarm"),
        alarm_name=f"{endpoint}-from-zero{suffix}",
        unit="instance",
        fault="a request waits and there is no instance",
        metric=of.queue("HasBacklogWithoutCapacity", "Average"),
        periods=2,
        missing="missing",
        cooldown_seconds=300,
    )


def _copies(deployment: GenerationDeployment, endpoint: str) -> ScaledCount:
    copies, target = deployment.spec.endpoint.copies, concurrency_target(deployment)
    tracking = TargetTracking(
        id="ConcurrencyPolicy",
        name="concurrency",
        metric=COPY_CONCURRENCY,
        value=target.value,
        derivation=target.derivation,
        scale_out_seconds=60,
        scale_in_seconds=300,
    )
    return ScaledCount(
        id=TARGET_ID,
        name=endpoint,
        resource_id=f"inference-component/{endpoint}",
        dimension=COPIES,
        least=copies.min,
        most=copies.max,
        tracking=(tracking,),
        from_zero=_first_copy(endpoint) if copies.min == 0 else None,
    )


def _first_copy(endpoint: str) -> FromZero:
    """Return how the first copy of an inference component comes."""
    metrics = VariantMetrics(endpoint, VARIANT)
    return FromZero(
        policy_id="FromZeroPolicy",
        alarm_id="FromZeroAlarm",
        alarm_name=f"{endpoint}-from-zero",
        unit="copy",
        fault="a request finds no copy",
        metric=metrics.component("NoCapacityInvocationFailures", "Maximum", 30),
        periods=1,
        missing="notBreaching",
        cooldown_seconds=60,
    )
