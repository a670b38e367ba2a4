"""The serving plan of a text generator, as `check`, `plan` and JSON show it."""

from __future__ import annotations

from typing import Literal

from onboarding.values import Value

CheckpointUse = Literal["serves", "accepted", "refused", "not built", "does not hold"]
"""What a checkpoint is to its endpoint; one that does not hold would miss the SLO on every type."""


class Candidate(Value):
    """One way to serve: an instance type with a number format and a tensor parallel size.

    Memory in GiB of one GPU, times in milliseconds, money in USD. `holds` False: `reason` says why.
    """

    instance_type: str
    gpu: str | None
    scheme: str
    kv_cache: str
    tensor_parallel: int
    copies_per_instance: int
    holds: bool
    reason: str | None = None
    weights_gib: float | None = None
    adapters_gib: float | None = None
    """Of all LoRA adapters that are served at once; None: there are none."""
    overhead_gib: float | None = None
    kv_gib: float | None = None
    kv_tokens: int | None = None
    longest_requests: float | None = None
    """Requests of max_model_len tokens that fit at once, as vLLM's log has it."""
    expected_requests: int | None = None
    """Requests of the declared mean lengths that one copy answers at once within the SLO."""
    copies: int | None = None
    instances: int | None = None
    itl_ms: float | None = None
    ttft_ms: float | None = None
    usd_an_hour: float | None = None
    usd_a_million_tokens: float | None = None
    """Of output tokens, at the SLO's concurrency; None: the price is not known."""
    is_measured: bool = False
    """True where memory and rates of this GPU with this engine version were measured."""


class CheckpointPlan(Value):
    """One checkpoint that a model's files ask for; `route`: where one that is missing is built."""

    checkpoint_key: str
    scheme: str
    use: CheckpointUse
    route: str | None = None


class TextGenerationPlan(Value):
    """What would serve one model in one environment."""

    model: str
    environment: str
    platform: str
    engine_version: str | None
    checkpoint_gib: float | None = None
    chosen: Candidate | None = None
    others: tuple[Candidate, ...] = ()
    """Instance types that were not chosen, each with its reason."""
    checkpoints: tuple[CheckpointPlan, ...] = ()
    notes: tuple[str, ...] = ()
