"""What a model is sent: texts, arrays or an image; other inputs are refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from onboarding.dataset import MEDIA_TYPES
from onboarding.deployment import Target
from onboarding.model_spec import EnsembleSpec, RepositorySpec
from onboarding.values import IMAGES
from roundhouse.errors import RoundhouseError, UsageError

if TYPE_CHECKING:
    from container.wire import Array

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
