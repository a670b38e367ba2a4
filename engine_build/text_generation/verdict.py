"""The verdict on a checkpoint: a budget holds only if the bad end of each interval does."""

from __future__ import annotations

from collections.abc import Iterator

from onboarding.text_generation.checkpoint_lock import (
    GateRecord,
    Interval,
    KvGate,
    SpeedRecord,
)
from onboarding.text_generation.spec import GenerationBudgetSpec

LITTLE = 2.0
"""A KL of at most so many budgets is missed by little: some layers in 16 bits may hold it."""


def missed_budgets(budget: GenerationBudgetSpec, gate: GateRecord) -> tuple[str, ...]:
    """Return what a checkpoint misses, a phrase each; none where it holds the budget."""
    missed = list(_missed(budget, gate, ""))
    if gate.kv is not None:
        missed += _missed(budget, gate.kv, " with an FP8 KV cache on long prompts")
    if budget.task is not None and gate.task is not None:
        drop = gate.task.drop
        if drop.high > budget.task.drop:
            missed.append(
                f"the score of {gate.task.file} falls by {_text(drop)}, and the budget allows "
                f"{budget.task.drop:g}"
            )
    return tuple(missed)


def reason(scheme: str, missed: tuple[str, ...]) -> str | None:
    """Return why a checkpoint is not accepted, in one sentence; None where nothing is missed."""
    return f"{scheme} misses its budget: {'; '.join(missed)}" if missed else None


def slower(scheme: str, speed: SpeedRecord | None) -> str | None:
    """Return why a measured checkpoint is not worth its loss; None where it is, or not measured.

    It is refused where the median of the rounds' ratios to the source is below 1 by a factor that
    is larger than that between the fastest and the slowest round of either of them.
    """
    if speed is None or speed.ratio is None or not speed.is_slower:
        return None
    return (
        f"{scheme} gives {_rate(speed.output_tokens_per_second)} output tokens a second on "
        f"{speed.instance_type_or_machine}, and its source "
        f"{_rate(speed.reference_tokens_per_second)}: {_text(speed.ratio)} times, and rounds of "
        f"one of them lie {speed.noise - 1:.1%} apart"
    )


def is_missed_by_little(budget: GenerationBudgetSpec, gate: GateRecord) -> bool:
    """Return True where a few layers in 16 bits may bring a checkpoint within its budget."""
    return (
        bool(missed_budgets(budget, gate.model_copy(update={"kv": None})))
        and gate.kl_per_token.high <= LITTLE * budget.kl_per_token
        and 1 - gate.top1.low <= LITTLE * (1 - budget.top1)
    )


def _missed(budget: GenerationBudgetSpec, gate: KvGate, where: str) -> Iterator[str]:
    if gate.kl_per_token.high > budget.kl_per_token:
        yield (
            f"KL per token{where} is {_text(gate.kl_per_token)} nats, and the budget allows "
            f"{budget.kl_per_token:g}"
        )
    if gate.top1.low < budget.top1:
        yield f"top-1 agreement{where} is {_text(gate.top1)}, and the budget asks {budget.top1:g}"
    if gate.perplexity_ratio.high > budget.perplexity_ratio:
        yield (
            f"perplexity{where} is {_text(gate.perplexity_ratio)} times the source's, and the "
            f"budget allows {budget.perplexity_ratio:g}"
        )


def _rate(tokens_per_second: float | None) -> str:
    assert tokens_per_second is not None
    return f"{tokens_per_second:.{0 if tokens_per_second >= 100 else 1}f}"


def _text(interval: Interval) -> str:
    return f"{interval.value:.3f} ({interval.low:.3f} to {interval.high:.3f})"
