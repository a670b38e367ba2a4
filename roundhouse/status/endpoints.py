"""The state of each endpoint and text generator by an environment's files and locks.

Instances, capacity, scaling, cost, memory, checkpoints. Asks no cloud.
"""

from __future__ import annotations

from dataclasses import dataclass

from onboarding.deployment import Deployment, Variant
from onboarding.hosting_spec import ScheduledFloorSpec
from onboarding.memory import PoolMemory, pool_memories
from onboarding.memory_findings import memory_faults, placement_change, pool_notes
from onboarding.names import endpoint_name
from onboarding.text_generation.generation_deployment import GenerationDeployment
from onboarding.text_generation.plan import CheckpointPlan, CheckpointUse
from stacks.capacity.engine import Capacity
from stacks.capacity.variant import capacity_warnings, variant_capacity
from stacks.dashboards.lines import instance_prices
from stacks.scaling.targets import (
    TargetValue,
    backlog_target,
    cpu_target,
    fewest,
    gpu_target,
    invocations_target,
    most,
    scaled_variants,
)


@dataclass(frozen=True, kw_only=True)
class Cost:
    """USD an hour of a variant's instances at its lowest and its highest count.

    None where a price is not known.
    """

    least: float | None
    most: float | None


@dataclass(frozen=True, kw_only=True)
class VariantState:
    """One variant.

    `capacity` None: not measured, and `unknown` says why; a target None: nothing scales on that
    metric.
    """

    name: str
    role: str
    instance_types: tuple[str, ...]
    fewest: int
    most: int
    capacity: Capacity | None
    unknown: tuple[str, ...]
    invocations_target: TargetValue | None
    backlog_target: TargetValue | None
    gpu_target: TargetValue | None
    cpu_target: TargetValue | None
    schedule: tuple[str, ...]
    usd_per_hour: Cost


@dataclass(frozen=True, kw_only=True)
class MemoryState:
    """How the models of a multi-model endpoint share one instance type, MiB and seconds.

    `change` is YAML, None where all fit.
    """

    instance_type: str
    kind: str | None
    available_mib: float | None
    taken_mib: float
    models: dict[str, float]
    fits: bool
    evicted: int
    round_seconds: float
    not_built: tuple[str, ...]
    notes: tuple[str, ...]
    change: str | None


@dataclass(frozen=True, kw_only=True)
class EndpointState:
    """One endpoint. `faults`: why it cannot work."""

    name: str
    endpoint: str
    latency_slo_ms: float | None
    variants: tuple[VariantState, ...]
    memory: tuple[MemoryState, ...]
    faults: tuple[str, ...]


def endpoint_state(deployment: Deployment) -> EndpointState:
    """One endpoint, by its files and locks alone."""
    return EndpointState(
        name=deployment.name,
        endpoint=endpoint_name(deployment.environment, deployment.name),
        latency_slo_ms=deployment.endpoint.latency_slo_ms,
        variants=tuple(_variant(deployment, variant) for variant in deployment.variants),
        memory=tuple(_memory(plan) for plan in pool_memories(deployment)),
        faults=memory_faults(deployment),
    )


def _variant(deployment: Deployment, variant: Variant) -> VariantState:
    scales, waits = (
        variant in scaled_variants(deployment),
        deployment.endpoint.asynchronous is not None,
    )
    is_busy = scales and not waits
    return VariantState(
        name=variant.name,
        role=variant.role,
        instance_types=tuple(pool.instance_type.name for pool in variant.pools),
        fewest=fewest(variant),
        most=most(variant),
        capacity=variant_capacity(deployment, variant),
        unknown=tuple(capacity_warnings(deployment, variant)),
        invocations_target=invocations_target(deployment, variant) if is_busy else None,
        backlog_target=backlog_target(deployment, variant) if scales and waits else None,
        gpu_target=gpu_target(deployment, variant) if is_busy else None,
        cpu_target=cpu_target(variant) if is_busy else None,
        schedule=tuple(map(_floor, variant.scaling.schedule)) if scales else (),
        usd_per_hour=_cost(deployment, variant),
    )


def _floor(floor: ScheduledFloorSpec) -> str:
    most_then = "" if floor.max is None else f" to {floor.max}"
    return (
        f"{floor.schedule} {'UTC' if floor.timezone is None else floor.timezone}: from "
        f"{floor.min}{most_then}"
    )


def _cost(deployment: Deployment, variant: Variant) -> Cost:
    """Of several instance types the cheapest at the least, the dearest at the most."""
    prices = instance_prices(deployment, variant)
    if prices is None:
        return Cost(least=None, most=None)
    return Cost(
        least=round(prices.least * fewest(variant), 4), most=round(prices.most * most(variant), 4)
    )


def _memory(plan: PoolMemory) -> MemoryState:
    is_known = plan.memory is not None
    return MemoryState(
        instance_type=plan.instance_type,
        kind=None if plan.memory is None else plan.memory.kind,
        available_mib=round(plan.capacity_mib, 1) if is_known else None,
        taken_mib=plan.total_mib,
        models={model.name: model.mib for model in plan.models},
        fits=plan.fits,
        evicted=plan.evicted if is_known else 0,
        round_seconds=plan.round_seconds if is_known else 0.0,
        not_built=plan.not_built,
        notes=tuple(pool_notes(plan)),
        change=placement_change(plan) if is_known and not plan.fits else None,
    )


@dataclass(frozen=True, kw_only=True)
class CheckpointState:
    """One checkpoint, and what it is to the endpoint.

    Of one that was compared with its source the divergence of a token in nats and the share of
    tokens with the source's first choice. `speed_ratio`: measured tokens a second through the
    source's on the same machine.
    """

    scheme: str
    checkpoint_key: str
    use: CheckpointUse
    weight_bytes: int | None
    kl_per_token: float | None
    top1: float | None
    output_tokens_per_second: float | None
    speed_ratio: float | None
    reason: str | None


@dataclass(frozen=True, kw_only=True)
class GeneratorState:
    """One text generator: what serves it by the plan, and its checkpoints.

    `problem`: why nothing serves; `knee_concurrency`: measured requests at once of one copy.
    """

    name: str
    endpoint: str
    endpoint_status: str
    instance_type: str
    instances: int | None
    copies: int | None
    tensor_parallel: int
    kv_tokens: int | None
    expected_requests: int | None
    knee_concurrency: float | None
    usd_per_hour: float | None
    usd_per_million_tokens: float | None
    checkpoints: tuple[CheckpointState, ...]
    problem: str | None


def generator_state(
    deployment: GenerationDeployment, endpoint_status: str = "unknown"
) -> GeneratorState:
    """Return one text generator's state; the status of its endpoint is the account's."""
    item, entry = deployment.candidate, deployment.entry
    return GeneratorState(
        name=deployment.name,
        endpoint=endpoint_name(deployment.environment, deployment.name),
        endpoint_status=endpoint_status,
        instance_type=item.instance_type,
        instances=item.instances,
        copies=item.copies,
        tensor_parallel=item.tensor_parallel,
        kv_tokens=item.kv_tokens,
        expected_requests=item.expected_requests,
        knee_concurrency=None if entry is None or entry.knee is None else entry.knee.concurrency,
        usd_per_hour=item.usd_an_hour,
        usd_per_million_tokens=item.usd_a_million_tokens,
        checkpoints=tuple(_checkpoint(deployment, plan) for plan in deployment.checkpoints),
        problem=deployment.problem,
    )


def _checkpoint(deployment: GenerationDeployment, plan: CheckpointPlan) -> CheckpointState:
    entries = {entry.checkpoint_key: entry for entry in deployment.built}
    entry = entries.get(plan.checkpoint_key)
    gate = None if entry is None else entry.gate
    speed = None if entry is None else entry.speed
    ratio = None if speed is None else speed.ratio
    return CheckpointState(
        scheme=plan.scheme,
        checkpoint_key=plan.checkpoint_key,
        use=plan.use,
        weight_bytes=None if entry is None else entry.weight_bytes,
        kl_per_token=None if gate is None else gate.kl_per_token.value,
        top1=None if gate is None else gate.top1.value,
        output_tokens_per_second=None if speed is None else speed.output_tokens_per_second,
        speed_ratio=None if ratio is None else ratio.value,
        reason=None if entry is None else entry.reason,
    )
