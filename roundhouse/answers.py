"""What an endpoint answers to texts, images and arrays: as JSON, and as tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from onboarding.deployment import Target
from roundhouse import invocation
from roundhouse.aws.clients import Client
from roundhouse.invocation import Address, Scores, Vector, cosine
from roundhouse.table import table

if TYPE_CHECKING:
    from container.wire import Array
    from roundhouse.table import Table

SHOWN_NUMBERS, SHOWN_CLASSES, SHOWN_VALUES = 8, 3, 6
"""Of a vector, of the labels of a text, and of an array, in a table."""


def text_answers(
    runtime: Client,
    address: Address,
    target: Target,
    texts: Sequence[str],
    query: str | None = None,
    prompt_name: str | None = None,
) -> list[dict[str, Any]]:
    """Return the answer to each text as JSON has it; of a ranking the highest score first.

    Raises RoundhouseError.
    """
    if query is not None:
        scores = invocation.invoke_ranking(runtime, address, query, texts)
        ranked = sorted(zip(texts, scores, strict=True), key=lambda pair: -pair[1])
        return [{"text": text, "score": score} for text, score in ranked]
    name = "embedding"
    answers: Iterable[Any]
    if target.model.task == "token-classification":
        found = invocation.invoke_entities(runtime, address, texts)
        name, answers = "entities", [[item._asdict() for item in items] for items in found]
    elif target.model.task == "text-classification":
        name, answers = "classes", map(dict, invocation.invoke_labels(runtime, address, texts))
    else:
        answers = invocation.invoke_texts(runtime, address, texts, prompt_name=prompt_name)
    return [{"text": text, name: answer} for text, answer in zip(texts, answers, strict=True)]


def answers_table(fields: Sequence[Mapping[str, Any]]) -> Table | str:
    """Return a table of the answers to texts, by their fields; a line for a single vector."""
    texts = [row["text"] for row in fields]
    if "score" in fields[0]:
        ranked = ((str(n), f"{row['score']:.4f}", row["text"]) for n, row in enumerate(fields, 1))
        return table(("Rank", "Score", "Text"), ranked, right=("Rank", "Score"))
    if "entities" in fields[0]:
        return _entities_table(fields)
    if "classes" in fields[0]:
        return classes_table(texts, [tuple(row["classes"].items()) for row in fields])
    vectors = [row["embedding"] for row in fields]
    return vector_text(vectors[0]) if len(vectors) == 1 else cosine_table(texts, vectors)


def vector_text(vector: Vector) -> str:
    """Return the first numbers of a vector, and how many it has."""
    head = ", ".join(f"{number:+.4f}" for number in vector[:SHOWN_NUMBERS])
    return f"[{head}, …]  {len(vector)} numbers"


def classes_table(texts: Sequence[str], classes: Sequence[Scores]) -> Table:
    """Return a table of the likeliest class of every text, and the next ones."""
    rows = (
        (
            text,
            scores[0][0],
            f"{scores[0][1]:.3f}",
            ", ".join(f"{name} {share:.3f}" for name, share in scores[1 : 1 + SHOWN_CLASSES]),
        )
        for text, scores in zip(texts, classes, strict=True)
    )
    return table(("Text", "Class", "Score", "Then"), rows, right=("Score",))


def _entities_table(fields: Sequence[Mapping[str, Any]]) -> Table:
    """Return a table of the entities of every text; a text without any has a row of its own."""
    rows = [
        (row["text"], e["text"], e["label"], f"{e['score']:.3f}", f"{e['start']}-{e['end']}")
        for row in fields
        for e in row["entities"]
    ]
    rows += [(row["text"], "none", "", "", "") for row in fields if not row["entities"]]
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


def arrays_document(arrays: Mapping[str, Array]) -> dict[str, Any]:
    """Return arrays for JSON, nested as their shapes say.

    NaN and infinity are null, as JSON has no word for them.
    """
    import numpy as np

    from container.wire import datatype

    def as_list(array: Array) -> Any:
        if array.dtype.kind != "f" or np.isfinite(array).all():
            return array.tolist()
        return np.where(np.isfinite(array), array, None).tolist()

    return {
        name: {"datatype": datatype(array), "shape": list(array.shape), "data": as_list(array)}
        for name, array in arrays.items()
    }


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
    values = array.reshape(-1)[:SHOWN_VALUES]
    head = (f"{value:g}" if array.dtype.kind == "f" else str(value) for value in values)
    return ", ".join(head) + (", …" if array.size > SHOWN_VALUES else "")
