"""Runs a user's preprocessing or postprocessing inside Triton: the first or last of an ensemble.

Engine archives carry this file as `<model>_preprocessing/1/model.py` or
`<model>_postprocessing/1/model.py`, with `manifest_check.py`, `processing.py`, `answer_check.py`
and the user's file beside it. The user's code runs in a process of its own: one client's fault
fails its own request.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import answer_check  # type: ignore[import-not-found]
import manifest_check  # type: ignore[import-not-found]
import processing  # type: ignore[import-not-found]
import triton_python_backend_utils as pb_utils

FUNCTIONS = {"preprocessing": "preprocess", "postprocessing": "postprocess"}


class TritonPythonModel:
    """One instance of the processing, as Triton's python backend calls it."""

    def initialize(self, args: Mapping[str, str]) -> None:
        """Check the user's file and import it; a refusal is one sentence."""
        folder = Path(args["model_repository"])
        part = folder.name.rpartition("_")[2]
        self._function = FUNCTIONS[part]
        try:
            manifest_check.refuse_misread_tensors(pb_utils.Tensor)
            pin = os.environ.get(manifest_check.PIN) or None
            manifest = manifest_check.read_manifest(folder.parent, pin)
            record = manifest[part]
            file = folder.parent / record["file"]
            _refuse_changed_file(file, manifest["files"][record["file"]])
            self._processing = processing.Processing(
                file, self._function, seconds=record["timeout_ms"] / 1000
            )
        except manifest_check.Refused as refusal:
            raise pb_utils.TritonModelException(str(refusal)) from None
        except processing.ProcessingFailed as fault:
            raise pb_utils.TritonModelException(f"Refused: {part}: {fault}.") from None
        self._inputs = [tensor["name"] for tensor in record["inputs"]]
        self._outputs = record["outputs"]

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """Return one response per request, in order; each request is a call of its own."""
        return [self._response(request) for request in requests]

    def finalize(self) -> None:
        """End the user's process."""
        self._processing.close()

    def _response(self, request: Any) -> Any:
        tensors = {
            name: pb_utils.get_input_tensor_by_name(request, name).as_numpy()
            for name in self._inputs
        }
        rows = len(next(iter(tensors.values())))
        try:
            answer = answer_check.checked_answer(
                self._processing.call(tensors), self._outputs, rows, self._function
            )
        except ValueError as refusal:
            return _error(str(refusal), pb_utils.TritonError.INVALID_ARG)
        except (processing.ProcessingFailed, answer_check.WrongAnswer) as fault:
            print(f"{fault}.", file=sys.stderr, flush=True)
            return _error(f"{fault}.", pb_utils.TritonError.INTERNAL)
        return pb_utils.InferenceResponse(
            [pb_utils.Tensor(name, array) for name, array in answer.items()]
        )


def _refuse_changed_file(file: Path, expected: str) -> None:
    """Refuse to run a file that is not the one that the manifest names. Raises Refused."""
    digest = hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else "none"
    if digest != expected:
        raise manifest_check.Refused(
            f"Refused: {file.name} has sha256 {digest}, but {manifest_check.MANIFEST_NAME} says "
            f"{expected}; publish the archive again."
        )


def _error(sentence: str, code: int) -> Any:
    return pb_utils.InferenceResponse([], pb_utils.TritonError(sentence, code))
