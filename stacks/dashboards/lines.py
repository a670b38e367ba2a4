"""Lines in graphs.

What was promised and what was measured, as the alarms and the scaling derive it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from onboarding.deployment import Deployment, Variant
from stacks.alarms.host_alarms import DISK_PERCENT, MEMORY_PERCENT, fills_its_memory
from stacks.alarms.request_alarms import longest_wait_seconds, measured_per_minute
from stacks.capacity.engine import gpus_used
from stacks.capacity.variant import drift_limit, variant_capacity
from stacks.scaling.targets import (
    backlog_target,
    fewest,
    gpu_target,
    invocations_target,
    most,
    scaled_variants,
)

PROMISED, MEASURED, WANTED = "#d62728", "#9467bd", "#2ca02c"
"""Colors of an SLO or a limit, of what a benchmark measured, and of what scaling aims at."""
COLORS = "Lines: red is promised, purple measured, green what scaling aims at."


@dataclass(frozen=True, kw_only=True)
class Line:
    """A level line: what it is, and of which endpoints or variants."""

    what: str
    of: tuple[str, ...] = ()
    value: float
    color: str

    @property
    def label(self) -> str:
        """The line's word."""
        return f"{self.what} of {', '.join(self.of)}" if self.of else self.what

    @property
    def annotation(self) -> dict[str, Any]:
        """As CloudWatch reads it."""
        return {"label": self.label, "value": self.value, "color": self.color}


def merge_lines(lines: Iterable[Line]) -> list[Line]:
    """Lines that would lie on each other as one, whose word names them all."""
    found: dict[tuple[str, float], Line] = {}
    for line in lines:
        before = found.get((line.what, line.value))
        found[(line.what, line.value)] = (
            line if before is None else replace(before, of=(*before.of, *line.of))
        )
    return list(found.values())


def slo_lines(deployment: Deployment) -> Iterator[Line]:
    """In milliseconds."""
    if deployment.endpoint.latency_slo_ms is not None:
        yield Line(
            what="SLO",
            of=(deployment.name,),
            value=deployment.endpoint.latency_slo_ms,
            color=PROMISED,
        )


def drift_lines(deployment: Deployment, variant: Variant) -> Iterator[Line]:
    """In milliseconds: where p99 has left what the benchmark measured."""
    limit = drift_limit(deployment, variant)
    if limit is not None:
        yield Line(
            what="drift from the benchmark",
            of=(_name(deployment, variant),),
            value=limit.milliseconds,
            color=MEASURED,
        )


def capacity_lines(deployment: Deployment, variant: Variant) -> Iterator[Line]:
    """Requests a minute of one instance: what was measured."""
    capacity = variant_capacity(deployment, variant)
    if capacity is not None and deployment.endpoint.asynchronous is None:
        value = measured_per_minute(capacity.requests_per_second)
        yield Line(
            what="measured capacity", of=(_name(deployment, variant),), value=value, color=MEASURED
        )


def target_lines(deployment: Deployment, variant: Variant) -> Iterator[Line]:
    """Requests a minute of one instance: what target tracking holds, where it does."""
    target = invocations_target(deployment, variant)
    if (
        target is not None
        and deployment.endpoint.asynchronous is None
        and variant in scaled_variants(deployment)
    ):
        yield Line(
            what="scaling target",
            of=(_name(deployment, variant),),
            value=target.value,
            color=WANTED,
        )


def gpu_lines(deployment: Deployment, variant: Variant) -> Iterator[Line]:
    """Percent of one GPU that target tracking holds, where it does.

    None where instance types differ in their GPUs.
    """
    target, counts = gpu_target(deployment, variant), gpu_counts(deployment, [variant])
    if target is None or len(counts) > 1 or deployment.endpoint.asynchronous is not None:
        return
    if variant in scaled_variants(deployment):
        yield Line(
            what="scaling target",
            of=(_name(deployment, variant),),
            value=round(target.value / counts[0], 1),
            color=WANTED,
        )


def gpu_counts(deployment: Deployment, variants: Sequence[Variant]) -> list[int]:
    """Distinct counts of GPUs that the server uses, over the instance types with GPUs."""
    types = [pool.instance_type for variant in variants for pool in variant.pools]
    return sorted({gpus_used(deployment, item) for item in types if item.is_gpu})


def memory_lines(deployment: Deployment) -> Iterator[Line]:
    """Percent of the memory, where an alarm watches it."""
    if not fills_its_memory(deployment):
        yield Line(what="memory alarm", value=MEMORY_PERCENT, color=PROMISED)


def disk_lines(deployment: Deployment) -> Iterator[Line]:
    """Percent of the disk, where an alarm watches it."""
    if not deployment.multi_model:
        yield Line(what="disk alarm", value=DISK_PERCENT, color=PROMISED)


def count_lines(deployment: Deployment, variant: Variant) -> Iterator[Line]:
    """The counts that scaling stays between."""
    if variant in scaled_variants(deployment):
        yield Line(
            what="fewest", of=(_name(deployment, variant),), value=fewest(variant), color=WANTED
        )
        yield Line(
            what="most", of=(_name(deployment, variant),), value=most(variant), color=PROMISED
        )


def cost_lines(deployment: Deployment, variant: Variant) -> Iterator[Line]:
    """USD an hour at the most instances, of the dearest type."""
    prices = instance_prices(variant)
    if prices is not None and variant in scaled_variants(deployment):
        what = f"{most(variant)} instances"
        yield Line(
            what=what,
            of=(_name(deployment, variant),),
            value=round(prices.most * most(variant), 4),
            color=PROMISED,
        )


def backlog_lines(deployment: Deployment) -> Iterator[Line]:
    """Requests that wait for each instance: what target tracking holds."""
    target = backlog_target(deployment, deployment.own)
    if target is not None and deployment.own in scaled_variants(deployment):
        yield Line(what="scaling target", of=(deployment.name,), value=target.value, color=WANTED)


def wait_lines(deployment: Deployment) -> Iterator[Line]:
    """Seconds that the oldest request may wait."""
    yield Line(what="alarm", value=longest_wait_seconds(deployment), color=PROMISED)


def _name(deployment: Deployment, variant: Variant) -> str:
    return deployment.name if variant is deployment.own else variant.name


WHERE = "prices of us-east-1"
"""Of onboarding/data/instance_types.yaml, whatever the region."""


@dataclass(frozen=True, kw_only=True)
class Prices:
    """USD an hour of one instance: the cheapest and the dearest of a variant's types."""

    least: float
    most: float


def instance_prices(variant: Variant) -> Prices | None:
    """None where the price of any of its instance types is not known.

    Nobody can tell which of them it runs on.
    """
    prices = [pool.instance_type.usd_per_hour for pool in variant.pools]
    known = [price for price in prices if price is not None]
    return (
        Prices(least=min(known), most=max(known)) if known and len(known) == len(prices) else None
    )
