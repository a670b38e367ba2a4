"""Level lines in graphs: what was promised and measured, as alarms and scaling derive it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from onboarding.deployment import Deployment, Variant
from onboarding.metrics import Line
from onboarding.prices import price
from stacks.alarms.host_alarms import DISK_PERCENT, MEMORY_PERCENT, fills_its_memory
from stacks.alarms.request_alarms import longest_wait_seconds, measured_per_minute
from stacks.capacity.engine import gpus_used
from stacks.capacity.variant import drift_limit, variant_capacity
from stacks.scaling.targets import (
    backlog_target,
    cpu_target,
    fewest,
    gpu_target,
    invocations_target,
    most,
    scaled_variants,
)

PROMISED, MEASURED, WANTED = "#d62728", "#9467bd", "#2ca02c"
"""Colors of an SLO or a limit, of what a benchmark measured, and of what scaling aims at."""
COLORS = "Lines: red is promised, purple measured, green what scaling aims at."


def merge_lines(lines: Iterable[Line]) -> list[Line]:
    """Lines that would lie on each other as one, whose label names them all."""
    merged: dict[tuple[str, float], Line] = {}
    for line in lines:
        key = (line.meaning, line.value)
        merged[key] = replace(line, of=(*merged[key].of, *line.of)) if key in merged else line
    return list(merged.values())


def slo_lines(deployment: Deployment, variant: Variant) -> list[Line]:
    """In milliseconds."""
    slo = deployment.endpoint.latency_slo_ms
    return [] if slo is None else [Line("SLO", slo, PROMISED, (deployment.name,))]


def drift_lines(deployment: Deployment, variant: Variant) -> list[Line]:
    """In milliseconds: where p99 has left what the benchmark measured."""
    limit, of = drift_limit(deployment, variant), _of(deployment, variant)
    if limit is None:
        return []
    return [Line("drift from the benchmark", limit.milliseconds, MEASURED, of)]


def capacity_lines(deployment: Deployment, variant: Variant) -> list[Line]:
    """Requests a minute of one instance: what was measured."""
    capacity = variant_capacity(deployment, variant)
    if capacity is None or deployment.endpoint.asynchronous is not None:
        return []
    value = measured_per_minute(capacity.requests_per_second)
    return [Line("measured capacity", value, MEASURED, _of(deployment, variant))]


def target_lines(deployment: Deployment, variant: Variant) -> list[Line]:
    """Requests a minute of one instance: what target tracking holds, where it does."""
    target = invocations_target(deployment, variant)
    if target is None or deployment.endpoint.asynchronous is not None:
        return []
    return _target(deployment, variant, target.value)


def gpu_lines(deployment: Deployment, variant: Variant) -> list[Line]:
    """Percent of one GPU that target tracking holds, where it does.

    None where instance types differ in their GPUs.
    """
    target, counts = gpu_target(deployment, variant), gpu_counts([variant])
    if target is None or len(counts) > 1 or deployment.endpoint.asynchronous is not None:
        return []
    return _target(deployment, variant, round(target.value / counts[0], 1))


def cpu_lines(deployment: Deployment, variant: Variant) -> list[Line]:
    """Percent of one vCPU that target tracking holds, where it does; of one instance type."""
    target, vcpus = cpu_target(variant), variant.instance_type.vcpus
    if target is None or vcpus is None or len(variant.pools) > 1:
        return []
    return _target(deployment, variant, round(target.value / vcpus, 1))


def backlog_lines(deployment: Deployment, variant: Variant) -> list[Line]:
    """Requests that wait for each instance: what target tracking holds."""
    target = backlog_target(deployment, variant)
    return [] if target is None else _target(deployment, variant, target.value)


def gpu_counts(variants: Sequence[Variant]) -> list[int]:
    """Distinct counts of GPUs that the server uses, over the instance types with GPUs."""
    pairs = [(variant, pool.instance_type) for variant in variants for pool in variant.pools]
    return sorted({gpus_used(variant, instance) for variant, instance in pairs if instance.is_gpu})


def memory_lines(deployment: Deployment, variant: Variant) -> list[Line]:
    """Percent of the memory, where an alarm watches it."""
    full = fills_its_memory(deployment)
    return [] if full else [Line("memory alarm", MEMORY_PERCENT, PROMISED)]


def disk_lines(deployment: Deployment, variant: Variant) -> list[Line]:
    """Percent of the disk, where an alarm watches it."""
    return [] if deployment.multi_model else [Line("disk alarm", DISK_PERCENT, PROMISED)]


def count_lines(deployment: Deployment, variant: Variant) -> list[Line]:
    """The counts that scaling stays between."""
    if variant not in scaled_variants(deployment):
        return []
    of = _of(deployment, variant)
    return [Line("fewest", fewest(variant), WANTED, of), Line("most", most(variant), PROMISED, of)]


def cost_lines(deployment: Deployment, variant: Variant) -> list[Line]:
    """USD an hour at the most instances, of the dearest type."""
    prices, count = instance_prices(deployment, variant), most(variant)
    if prices is None or variant not in scaled_variants(deployment):
        return []
    value = round(prices.most * count, 4)
    return [Line(f"{count} instances", value, PROMISED, _of(deployment, variant))]


def wait_lines(deployment: Deployment, variant: Variant) -> list[Line]:
    """Seconds that the oldest request may wait."""
    return [Line("alarm", longest_wait_seconds(deployment), PROMISED)]


def _target(deployment: Deployment, variant: Variant, value: float) -> list[Line]:
    is_scaled = variant in scaled_variants(deployment)
    line = Line("scaling target", value, WANTED, _of(deployment, variant))
    return [line] if is_scaled else []


def _of(deployment: Deployment, variant: Variant) -> tuple[str]:
    return (deployment.name if variant is deployment.own else variant.name,)


@dataclass(frozen=True, kw_only=True)
class Prices:
    """USD an hour of one instance: the cheapest and the dearest of a variant's types."""

    least: float
    most: float
    region: str


def instance_prices(deployment: Deployment, variant: Variant) -> Prices | None:
    """None where the price of any of its instance types is not known: it may run on that one."""
    region = deployment.environment.region
    prices = [price(region, "hosting", pool.instance_type.name) for pool in variant.pools]
    known = [value for value in prices if value is not None]
    if not known or len(known) < len(prices):
        return None
    return Prices(least=min(known), most=max(known), region=region)
