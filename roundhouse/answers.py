"""What an endpoint answers to texts, images and arrays: as JSON, and as tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from onboarding.deployment import Target
from roundhouse import invocation
from roundhouse.aws.clients import Client
from roundhouse.invocation import Address, Vector, cosine
from roundhouse.table import table

if TYPE_CHECKING:
    from container.wire import Array
    from roundhouse.table import Table

SHOWN_NUMBERS, SHOWN_CLASSES, SHOWN_VALUES = 8, 4, 6
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
    """Return a table with a column for each field of the answers.

    Of several vectors it has their cosines; a single vector is a line.
    """
    if "embedding" not in fields[0]:
        return table(fields[0], (map(_cell, row.values()) for row in fields), right=("score",))
    vectors = [row["embedding"] for row in fields]
    if len(vectors) == 1:
        return vector_text(vectors[0])
    return cosine_table([row["text"] for row in fields], vectors)


def _cell(value: Any) -> str:
    """Return a score, the likeliest classes, or the entities of a text."""
    if isinstance(value, float):
        return f"{value:.4f}"
    if isinstance(value, Mapping):
        shares = list(value.items())[:SHOWN_CLASSES]
        return ", ".join(f"{name} {share:.3f}" for name, share in shares)
    if isinstance(value, str):
        return value
    found = (
        f"{item['text']} ({item['start']}-{item['end']}) {item['label']} {item['score']:.3f}"
        for item in value
    )
    return ", ".join(found) or "none"


def vector_text(vector: Vector) -> str:
    """Return the first numbers of a vector, and how many it has."""
    head = ", ".join(f"{number:+.4f}" for number in vector[:SHOWN_NUMBERS])
    return f"[{head}, …]  {len(vector)} numbers"


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
