"""Compares the vectors that an endpoint answered with PyTorch's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onboarding.deployment import Target
from onboarding.manifest import Manifest
from roundhouse.dev.demo.search import misses
from roundhouse.errors import WrongAnswerError
from roundhouse.invocation import Vector, cosine

FLOAT_WORST = 0.9999
"""What an fp32 engine must keep of PyTorch's own vectors: their cosine."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What one model answered, and how that compares."""

    model: str
    endpoint: str
    server: str
    manifest: Manifest
    vectors: tuple[Vector, ...]
    milliseconds: float
    worst: float
    least: float


def least_cosine(target: Target, manifest: Manifest) -> float:
    """The least cosine with PyTorch that a model's precision allows: its budget's worst, or nearly
    one for fp32.
    """
    budget = target.model.accuracy.budget
    if manifest.precision == "fp32":
        return FLOAT_WORST
    return budget.mean if budget.worst is None else budget.worst


def worst_cosine(found: Sequence[Vector], reference: Sequence[Vector]) -> float:
    """The cosine of the pair that differs most."""
    return min(cosine(left, right) for left, right in zip(found, reference, strict=True))


def require_sound(answer: Answer) -> None:
    """Raises WrongAnswerError when an answer strays from PyTorch, or finds the wrong sentence."""
    if answer.worst < answer.least:
        raise WrongAnswerError(
            f"{answer.model} at {answer.endpoint}: its worst vector has cosine {answer.worst:.5f} with PyTorch's; "
            f"at least {answer.least} is asked of {answer.manifest.precision}."
        )
    missed = misses(answer.vectors)
    if missed:
        raise WrongAnswerError(
            f"{answer.model} at {answer.endpoint}: finds the wrong sentence for {missed[0]!r}."
        )
