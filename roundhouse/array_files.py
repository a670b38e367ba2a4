"""Arrays that go to an endpoint from a file, and come back into one."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onboarding.deployment import Target
from roundhouse.errors import RoundhouseError, UsageError

if TYPE_CHECKING:
    from container.wire import Array

ALLOWED = "allowed: .npz (an array per input, rows on axis 0), .npy (the only input)"


def read(path: Path, target: Target) -> dict[str, Array]:
    """The arrays of a file by input. Raises RoundhouseError."""
    from roundhouse.load_test.inputs import arrays_in

    try:
        data = path.read_bytes()
    except OSError as error:
        raise RoundhouseError(f"--input {path}: {error.strerror}; {ALLOWED}.") from error
    if path.suffix == ".npz":
        return arrays_in(data, path)
    if path.suffix == ".npy":
        return {_only_input(path, target): _array(data, path)}
    raise UsageError(f"--input {path}: is no file of arrays; {ALLOWED}.")


def write(path: Path, arrays: Mapping[str, Any]) -> None:
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


def as_document(arrays: Mapping[str, Array]) -> dict[str, Any]:
    """The arrays for JSON, nested as their shapes say.

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
