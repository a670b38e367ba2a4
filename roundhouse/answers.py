"""What a model is sent, others refused; and what it answers, as JSON and as tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onboarding.dataset import MEDIA_TYPES
from onboarding.deployment import Target
from onboarding.model_spec import EnsembleSpec, RepositorySpec
from onboarding.values import IMAGES
from roundhouse.aws.clients import Client
from roundhouse.errors import RoundhouseError, UsageError
from roundhouse.invocation import Address, Vector, cosine, endpoint_client
from roundhouse.table import table

if TYPE_CHECKING:
    from container.wire import Array
    from roundhouse.table import Table

SHOWN_NUMBERS, SHOWN_CLASSES, SHOWN_VALUES = 8, 4, 6
"""Of a vector, of the labels of a text, and of an array, in a table."""
ARRAYS = "allowed: .npz (an array per input, rows on axis 0), .jpg, .jpeg, .png"


def read_arrays(path: Path) -> dict[str, Array]:
    """Return the arrays of an .npz file by input. Raises RoundhouseError."""
    from roundhouse.measure.inputs import arrays_in

    if path.suffix != ".npz":
        raise UsageError(f"--input {path}: is no file of arrays; {ARRAYS}.")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RoundhouseError(f"--input {path}: {error.strerror}; {ARRAYS}.") from error
    return arrays_in(data, path)


def read_image(path: Path | None) -> bytes | None:
    """Return the bytes of a file that is named as an image; None: it is none. Raises UsageError."""
    if path is None or path.suffix.lower() not in MEDIA_TYPES:
        return None
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"--input {path}: {error.strerror}; name a JPEG or PNG file.") from error


def require_inputs(
    target: Target,
    texts: Sequence[str],
    file: Path | None,
    query: str | None = None,
    *,
    is_image: bool = False,
) -> None:
    """Raise UsageError for inputs of the wrong kind, none, or texts without words."""
    name, task, own = target.model.name, target.model.task, own_tensors(target)
    if query is not None and task != "text-ranking":
        raise UsageError(f"{name}: is of task {task}; only a ranker takes --query.")
    if task == IMAGES or is_image:
        if task != IMAGES:
            raise UsageError(f"{name}: is of task {task}, and --input names an image.")
        if texts or not is_image:
            raise UsageError(f"{name}: takes images; give --input PICTURE.jpg, and no texts.")
    elif own is not None or task == "tensors":
        if texts or file is None:
            takes = own or "takes arrays"
            raise UsageError(
                f"{name}: {takes}; give --input FILE.npz (an array per input, rows on axis 0; "
                "texts as numpy's str) and no texts."
            )
    elif file is not None or not texts:
        raise UsageError(f"{name}: takes texts; give them as arguments.")
    else:
        _require_words(name, texts, "a query" if task != "text-ranking" else query or "")


def _require_words(name: str, texts: Sequence[str], query: str) -> None:
    if not query.strip():
        raise UsageError(f"{name}: ranks texts for a query; give --query with words.")
    for number, text in enumerate(texts, 1):
        if not text.strip():
            raise UsageError(f"{name}: text {number} is empty; give words, or leave it out.")


def own_tensors(target: Target) -> str | None:
    """Return what clients send and get where a model file declares it; None where the task does."""
    if isinstance(target.model, EnsembleSpec | RepositorySpec):
        if target.lock_entry is None:
            return "takes and answers tensors"
        inputs, outputs = target.lock_entry.manifest.inputs, target.lock_entry.manifest.outputs
        sent, got = (", ".join(tensor.name for tensor in tensors) for tensors in (inputs, outputs))
        return f"takes {sent} and answers {got}"
    before, after = target.model.serving.preprocessing, target.model.serving.postprocessing
    parts = {
        "takes": () if before is None else before.inputs,
        "answers": () if after is None else after.outputs,
    }
    words = [
        f"{verb} {', '.join(tensor.name for tensor in tensors)}"
        for verb, tensors in parts.items()
        if tensors
    ]
    return " and ".join(words) or None


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
    name, task = "embedding", target.model.task
    answers: Iterable[Any]
    with endpoint_client(runtime, address) as client:
        if query is not None:
            scores = client.rank(query, texts).tolist()
            ranked = sorted(zip(texts, scores, strict=True), key=lambda pair: -pair[1])
            return [{"text": text, "score": score} for text, score in ranked]
        if task == "token-classification":
            found = client.entities(texts)
            name, answers = "entities", [[item._asdict() for item in items] for items in found]
        elif task == "text-classification":
            name, answers = "classes", map(dict, client.classify(texts))
        else:
            answers = map(tuple, client.embed(texts, prompt_name).tolist())
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
