"""The values that target tracking holds a variant's metrics at, each with its derivation."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal

from onboarding.deployment import VARIANT, Deployment, Pool, Variant
from stacks.capacity.engine import gpus_used
from stacks.capacity.variant import measurement_text, served_capacity, variant_capacity

SECONDS_A_MINUTE = 60
LEAST_TARGET = 1.0
LOWEST_GPU_PERCENT, HIGHEST_GPU_PERCENT = 1.0, 95.0
"""A target above zero, on a GPU that is used; a metric that ends at 100 must be able to pass it."""


@dataclass(frozen=True, kw_only=True)
class TargetValue:
    """A value of a metric, and how it was derived."""

    value: float
    derivation: str


def invocations_target(deployment: Deployment, variant: Variant) -> TargetValue | None:
    """Invocations a minute of one instance: a share of its capacity; None when not measured."""
    return _share_of_a_minute(deployment, variant, "invocations a minute")


def backlog_target(deployment: Deployment, variant: Variant) -> TargetValue | None:
    """Requests that may wait for each instance: a share of what one answers in a minute."""
    return _share_of_a_minute(deployment, variant, "requests waiting for each instance")


def gpu_target(deployment: Deployment, variant: Variant) -> TargetValue | None:
    """Summed percent of all used GPUs at the saturation point; the metric counts 100 for each.

    None on a CPU. Of several instance types the least counts: the metric is a mean over instances
    of every type.
    """
    if not all(pool.instance_type.is_gpu for pool in variant.pools):
        return None
    targets = [_pool_gpu_target(deployment, variant, pool) for pool in variant.pools]
    return min(targets, key=lambda target: target.value)


def cpu_target(variant: Variant) -> TargetValue | None:
    """Summed percent of an instance's vCPUs that the file asks for; the metric counts 100 for each.

    None without `scaling.cpu_utilization_percent`, and where a type's vCPUs are not known. Of
    several instance types the least counts, as of GPUs. Source: SageMaker developer guide,
    monitoring-cloudwatch: "The CPU utilization of each core ranges between 0 and 100".
    """
    percent = variant.scaling.cpu_utilization_percent
    counts = {pool.instance_type.name: pool.instance_type.vcpus for pool in variant.pools}
    known = {name: count for name, count in counts.items() if count is not None}
    if percent is None or len(known) < len(counts):
        return None
    name, vcpus = min(known.items(), key=lambda pair: pair[1])
    derivation = f"{percent} % (scaling.cpu_utilization_percent) x {vcpus} vCPUs of {name}"
    return TargetValue(value=float(percent * vcpus), derivation=derivation)


def _share_of_a_minute(deployment: Deployment, variant: Variant, unit: str) -> TargetValue | None:
    """To a tenth, downward: rounding never promises more than was measured."""
    capacity, safety = variant_capacity(deployment, variant), variant.scaling.safety_factor
    if capacity is None:
        return None
    share = floored(capacity.requests_per_second, SECONDS_A_MINUTE, safety)
    value = max(LEAST_TARGET, share)
    raised = f", raised to {value:g}, the least" if share < LEAST_TARGET else ""
    explanation = (
        f"{capacity.derivation} x {SECONDS_A_MINUTE} s x safety factor {safety:g} = {share:.10g}"
        f" {unit}{raised}"
    )
    return TargetValue(value=value, derivation=explanation)


def floored(*factors: float) -> float:
    """Return a product to a tenth, downward."""
    exact = math.prod(Decimal(str(factor)) for factor in factors)
    return float(Decimal(exact).quantize(Decimal("0.1"), rounding=ROUND_FLOOR))


def _pool_gpu_target(deployment: Deployment, variant: Variant, pool: Pool) -> TargetValue:
    percent, origin = _saturation_percent(deployment, variant, pool)
    gpus, instance = gpus_used(variant, pool.instance_type), pool.instance_type
    which = (
        ""
        if gpus == instance.gpu_count
        else f", which the Python server uses of the {instance.gpu_count}"
    )
    derivation = f"{percent:g} % ({origin}) x {gpus} GPU{which} of {instance.name}"
    return TargetValue(value=round(percent * gpus, 1), derivation=derivation)


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


def variant_id(variant: Variant, part: str) -> str:
    """Return the logical id of a part of a variant; see `named_id`."""
    return named_id(variant.name, part)


def named_id(variant: str, part: str) -> str:
    """Return a logical id: the own variant's is the part alone, so that it never changes.

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


def fewest(variant: Variant) -> int:
    """The lowest floor that a variant ever has."""
    return min([variant.scaling.min, *(floor.min for floor in variant.scaling.schedule)])


def most(variant: Variant) -> int:
    """The highest ceiling that a variant ever has; a shadow keeps the count that it begins with."""
    if variant.role == "shadow":
        return variant.scaling.min
    ceilings = (floor.max for floor in variant.scaling.schedule)
    return max([variant.scaling.max, *(ceiling for ceiling in ceilings if ceiling is not None)])
