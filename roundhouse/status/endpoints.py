"""The state of each text generator by an environment's files and locks. Asks no cloud."""

from __future__ import annotations

from dataclasses import dataclass

from onboarding.names import endpoint_name
from onboarding.text_generation.generation_deployment import GenerationDeployment
from onboarding.text_generation.plan import CheckpointPlan, CheckpointUse


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
