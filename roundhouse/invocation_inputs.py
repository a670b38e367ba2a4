"""What a model is sent, and its arrays as files: texts, arrays, images; others are refused."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onboarding.dataset import FOLDER, LABELLED, MEDIA_TYPES, TEXTS, Datasets, image_names
from onboarding.deployment import Target
from onboarding.ensemble_spec import EnsembleSpec
from onboarding.repository_spec import RepositorySpec
from onboarding.values import IMAGES
from roundhouse.errors import RoundhouseError, UsageError

if TYPE_CHECKING:
    from container.wire import Array

ARRAYS = "allowed: .npz (an array per input, rows on axis 0), .npy (the only input)"
TEXT_FILES = (
    f"allowed: {TEXTS} (a text a line), {LABELLED} (query, tab, text for a ranker; otherwise "
    "label, tab, text, whose label is not sent)"
)


@dataclass(frozen=True, kw_only=True)
class TextRows:
    """The rows of a file; `first` is what stands before the tab, and empty where there is none."""

    texts: tuple[str, ...]
    first: tuple[str, ...] = ()


def read_text_rows(path: Path, words: Sequence[str] = ()) -> TextRows:
    """Read the texts of a file, blank lines left out. Raises RoundhouseError.

    `words`: texts that were given beside it, which is refused.
    """
    if words:
        raise UsageError("--input: give texts as arguments or in a file, not both.")
    if path.suffix not in (TEXTS, LABELLED):
        raise RoundhouseError(f"--input {path}: is no file of texts; {TEXT_FILES}.")
    found = Datasets(path.parent)[path.name]
    if found.problem is not None:
        raise RoundhouseError(f"--input {path}: {found.problem}; {found.way_out}.")
    return TextRows(texts=found.texts, first=found.labels or ())


def read_arrays(path: Path, target: Target) -> dict[str, Array]:
    """Return the arrays of a file by input. Raises RoundhouseError."""
    from roundhouse.measure.inputs import arrays_in

    try:
        data = path.read_bytes()
    except OSError as error:
        raise RoundhouseError(f"--input {path}: {error.strerror}; {ARRAYS}.") from error
    if path.suffix == ".npz":
        return arrays_in(data, path)
    if path.suffix == ".npy":
        return {_only_input(path, target): _array(data, path)}
    raise UsageError(f"--input {path}: is no file of arrays; {ARRAYS}.")


def write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write an .npz. Raises RoundhouseError."""
    import numpy as np

    from engine_build.datasets.dataset import save_arrays

    if path.suffix != ".npz":
        raise UsageError(f"--output {path}: is written as .npz; name it so.")
    kept = io.BytesIO()
    # The file is read back without pickle: texts are texts, not objects.
    plain = {
        name: np.asarray(array, dtype=str if np.asarray(array).dtype == object else None)
        for name, array in arrays.items()
    }
    save_arrays(kept, plain)
    try:
        path.write_bytes(kept.getvalue())
    except OSError as error:
        raise RoundhouseError(
            f"--output {path}: {error.strerror}; give a file that can be written."
        ) from error


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
        name: {"datatype": datatype(each), "shape": list(each.shape), "data": as_list(each)}
        for name, each in arrays.items()
    }


def _only_input(path: Path, target: Target) -> str:
    inputs = () if target.lock_entry is None else target.lock_entry.manifest.inputs
    if len(inputs) != 1:
        known = ", ".join(item.name for item in inputs)
        takes = f"takes {known}" if inputs else "has no lock entry that names its input"
        raise RoundhouseError(
            f"--input {path}: a .npy names no input, and {target.model.name} {takes}; give an .npz."
        )
    return inputs[0].name


def _array(data: bytes, path: Path) -> Array:
    import numpy as np

    try:
        found: Array = np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
    except Exception as error:
        # A damaged file makes numpy raise anything, and advise to read it unsafely.
        raise RoundhouseError(
            f"--input {path}: is no .npy file of a plain array, or a damaged one; write a plain "
            "array with numpy.save."
        ) from error
    return found


def require_images(target: Target, files: Sequence[Path] | None) -> None:
    """Raise UsageError for images of a model that takes none, or none of one that does."""
    name, takes_images = target.model.name, target.model.task == IMAGES
    if takes_images and files is None:
        raise UsageError(f"{name}: takes images; give --input PICTURE.jpg, or a folder of them.")
    if files is not None and not takes_images:
        raise UsageError(f"{name}: is of task {target.model.task}, and --input names images.")


def image_paths(file: Path | None, texts: Sequence[str]) -> list[Path] | None:
    """Return the images that --input names; None where it names texts. Raises UsageError."""
    if file is None or not (file.is_dir() or file.suffix.lower() in MEDIA_TYPES):
        return None
    if texts:
        raise UsageError("--input: an image model takes no texts; leave them out.")
    if not file.is_dir():
        if not file.is_file():
            raise UsageError(f"--input {file}: is no file; name a JPEG or PNG file.")
        return [file]
    try:
        return [file / name for name in image_names(file)]
    except (ValueError, OSError) as error:
        raise UsageError(f"--input {file}: {error}; name {FOLDER}.") from error


def require_inputs(
    target: Target, texts: Sequence[str], file: Path | None, query: str | None = None
) -> None:
    """Raise UsageError for inputs of the wrong kind, none, or texts without words."""
    name = target.model.name
    own = own_tensors(target)
    if own is not None:
        if texts or file is None:
            is_ensemble = isinstance(target.model, EnsembleSpec)
            kind = "is an ensemble" if is_ensemble else "has code of its own around the model"
            raise UsageError(
                f"{name}: {kind}, so it {own}; give --input FILE.npz "
                "(an array per input, rows on axis 0; texts as numpy's str) and no texts."
            )
        return
    ranks = target.model.task == "text-ranking"
    if ranks and (query is None or not query.strip()):
        raise UsageError(f"{name}: ranks texts for a query; give --query with words.")
    if query is not None and not ranks:
        raise UsageError(f"{name}: is of task {target.model.task}; only a ranker takes --query.")
    if target.model.task == "tensors":
        if texts or file is None:
            raise UsageError(
                f"{name}: takes arrays; give --input FILE.npz (an array per input, rows on axis 0) "
                "and no texts."
            )
    elif file is not None or not texts:
        raise UsageError(f"{name}: takes texts; give them as arguments or by --input FILE.txt.")
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
