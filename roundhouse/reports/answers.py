"""Tables of what an endpoint answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from roundhouse.invocation import Scores, Vector, cosine
from roundhouse.report import table

if TYPE_CHECKING:
    from rich.table import Table

    from container.entities import Entity


def rows_table(texts: Sequence[str], answers: Sequence[str], queries: Sequence[str] = ()) -> Table:
    """Return a table of the rows of a file, in its order, with the answer of each."""
    numbers = map(str, range(1, len(texts) + 1))
    if queries:
        return table(
            ("Row", "Query", "Text", "Score"),
            zip(numbers, queries, texts, answers, strict=True),
            right=("Row", "Score"),
        )
    return table(
        ("Row", "Text", "Answer"), zip(numbers, texts, answers, strict=True), right=("Row",)
    )


def vector_text(vector: Vector, most: int = 8) -> str:
    """Return the first numbers of a vector, and how many it has."""
    head = ", ".join(f"{number:+.4f}" for number in vector[:most])
    return f"[{head}, …]  {len(vector)} numbers"


def classes_text(scores: Scores, most: int = 3) -> str:
    """Return the likeliest labels of a text with their scores."""
    return ", ".join(f"{name} {share:.3f}" for name, share in scores[:most])


def entities_text(entities: Sequence[Entity]) -> str:
    """Return the entities of a text with their labels and scores."""
    return ", ".join(f"{item.text} {item.label} {item.score:.3f}" for item in entities) or "none"


def classes_table(texts: Sequence[str], classes: Sequence[Scores]) -> Table:
    """Return a table of the likeliest class of every text, and the next ones."""
    return table(
        ("Text", "Class", "Score", "Then"),
        (
            (
                text,
                scores[0][0],
                f"{scores[0][1]:.3f}",
                ", ".join(f"{name} {share:.3f}" for name, share in scores[1:4]),
            )
            for text, scores in zip(texts, classes, strict=True)
        ),
        right=("Score",),
    )


def ranking_table(ranked: Sequence[tuple[str, float]]) -> Table:
    """Return a table of texts with their scores, the highest first."""
    rows = ((str(place), f"{score:.4f}", text) for place, (text, score) in enumerate(ranked, 1))
    return table(("Rank", "Score", "Text"), rows, right=("Rank", "Score"))


def entities_table(texts: Sequence[str], found: Sequence[Sequence[Entity]]) -> Table:
    """Return a table of the entities of every text; a text without any has a row of its own."""
    rows = [
        (text, entity.text, entity.label, f"{entity.score:.3f}", f"{entity.start}-{entity.end}")
        for text, entities in zip(texts, found, strict=True)
        for entity in entities
    ]
    rows += [
        (text, "none", "", "", "") for text, none in zip(texts, found, strict=True) if not none
    ]
    return table(("Text", "Entity", "Label", "Score", "Characters"), rows, right=("Score",))


def cosine_table(texts: Sequence[str], vectors: Sequence[Vector]) -> Table:
    """Return a table of the cosine of every text with every other."""
    numbers = tuple(map(str, range(1, len(texts) + 1)))
    return table(
        ("Cosine", *numbers),
        (
            (f"{number} {text}", *(f"{cosine(vector, other):.3f}" for other in vectors))
            for number, text, vector in zip(numbers, texts, vectors, strict=True)
        ),
        right=numbers,
    )


def arrays_table(arrays: Mapping[str, Any]) -> Table:
    """Return a table of the name, shape, type and first values of every array."""
    return table(
        ("Output", "Shape", "Type", "First values"),
        (
            (name, " × ".join(map(str, array.shape)), str(array.dtype), _first_values(array))
            for name, array in arrays.items()
        ),
    )


def _first_values(array: Any) -> str:
    values = array.reshape(-1)[:6]
    head = (f"{value:g}" if array.dtype.kind == "f" else str(value) for value in values)
    return ", ".join(head) + (", …" if array.size > 6 else "")
