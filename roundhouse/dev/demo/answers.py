"""The demo's semantic search, and each model's answer compared with PyTorch's own vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onboarding.deployment import Target
from onboarding.manifest import Manifest
from roundhouse.errors import WrongAnswerError
from roundhouse.invocation import Vector, cosine

DOCUMENTS = (
    "The night train to Vienna leaves from platform nine.",
    "Preheat the oven and knead the dough for ten minutes.",
    "Our quarterly revenue grew by eight percent.",
    "The vet says the puppy needs one more vaccination.",
    "You can reset your password on the account page.",
    "A thunderstorm is expected over the coast tonight.",
    "The orchestra rehearses the symphony every Tuesday.",
    "Engineers turned the locomotive around on the turntable.",
    "She planted tomatoes and basil on the balcony.",
    "The court postponed the hearing until next month.",
    "Regular walks lower the risk of heart disease.",
    "The telescope photographed a distant spiral galaxy.",
)
QUESTIONS = (
    "How do I get back into my account when I forgot my login?",
    "What will the weather be like this evening?",
    "Where did they rotate the steam engine?",
)
EXPECTED = (4, 5, 7)
"""The sentence that answers each question, by position."""

TEXTS = DOCUMENTS + QUESTIONS
SERVERS = {"python": "Python server", "triton": "Triton"}


FLOAT_WORST = 0.9999
"""What an fp32 engine must keep of PyTorch's own vectors: their cosine."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What one model answered to TEXTS, and how that compares with PyTorch's vectors."""

    model: str
    endpoint: str
    server: str
    manifest: Manifest
    vectors: tuple[Vector, ...]
    milliseconds: float
    worst: float
    least: float


def scores(vectors: Sequence[Vector], question: int) -> dict[int, float]:
    """Return each sentence's cosine with a question, the nearest first, by its position."""
    cosines = [cosine(vectors[len(DOCUMENTS) + question], vector) for vector in vectors]
    ranked = sorted(range(len(DOCUMENTS)), key=lambda sentence: -cosines[sentence])
    return {sentence: cosines[sentence] for sentence in ranked}


def least_cosine(target: Target, manifest: Manifest) -> float:
    """Return the least cosine with PyTorch's vectors that a model's budget and precision allow."""
    budget = target.model.accuracy.budget
    if manifest.precision == "fp32":
        return FLOAT_WORST
    return budget.mean if budget.worst is None else budget.worst


def worst_cosine(vectors: Sequence[Vector], reference: Sequence[Vector]) -> float:
    """Return the cosine of the pair that differs most."""
    return min(cosine(left, right) for left, right in zip(vectors, reference, strict=True))


def require_sound(answer: Answer) -> None:
    """Raise WrongAnswerError for vectors far from PyTorch's, or for a wrong sentence found."""
    if answer.worst < answer.least:
        raise WrongAnswerError(
            f"{answer.model} at {answer.endpoint}: its worst vector has cosine {answer.worst:.5f} "
            f"with PyTorch's; {answer.manifest.precision} must have at least {answer.least}."
        )
    for position, (question, expected) in enumerate(zip(QUESTIONS, EXPECTED, strict=True)):
        if next(iter(scores(answer.vectors, position))) != expected:
            raise WrongAnswerError(
                f"{answer.model} at {answer.endpoint}: finds the wrong sentence for {question!r}."
            )
