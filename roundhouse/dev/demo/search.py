"""The small semantic search of the demo: a dozen sentences, three questions, and which sentence
lies nearest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from roundhouse.invocation import Vector, cosine

SENTENCES = (
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

TEXTS = SENTENCES + QUESTIONS


@dataclass(frozen=True, kw_only=True)
class Hit:
    """One sentence found for a question."""

    sentence: int
    score: float


def hits(vectors: Sequence[Vector], question: int, count: int = 2) -> tuple[Hit, ...]:
    """The nearest sentences of a question; `vectors` are those of TEXTS."""
    asked = vectors[len(SENTENCES) + question]
    found = [
        Hit(sentence=place, score=cosine(asked, vectors[place])) for place in range(len(SENTENCES))
    ]
    return tuple(sorted(found, key=lambda hit: -hit.score)[:count])


def misses(vectors: Sequence[Vector]) -> tuple[str, ...]:
    """Questions whose nearest sentence is not their answer."""
    return tuple(
        question
        for place, question in enumerate(QUESTIONS)
        if hits(vectors, place, 1)[0].sentence != EXPECTED[place]
    )
