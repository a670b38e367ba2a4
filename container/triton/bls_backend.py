"""Runs a user's `execute(inputs, call)` inside Triton: a model that calls others (BLS).

Archives of ensembles carry this file as `<model>/1/model.py`, with `manifest_check.py`,
`processing.py`, `answer_check.py` and the user's file beside it. The user's code runs in a process
of its own: its calls travel to this one, which makes them of Triton.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import answer_check  # type: ignore[import-not-found]
import manifest_check  # type: ignore[import-not-found]
import processing  # type: ignore[import-not-found]
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """One instance of the user's code, as Triton's python backend calls it."""

    def initialize(self, args: Mapping[str, str]) -> None:
        """Check the archive and import the user's file; a refusal is one sentence."""
        archive = Path(args["model_repository"]).parent
        try:
            manifest = manifest_check.read_manifest(
                archive, os.environ.get(manifest_check.PIN) or None
            )
            manifest_check.refuse_unchecked_files(archive, manifest["files"])
            record = manifest["ensemble"]["bls"]
            self._processing = processing.Processing(
                archive / record["file"], processing.EXECUTE, seconds=record["timeout_ms"] / 1000
            )
        except manifest_check.Refused as refusal:
            raise pb_utils.TritonModelException(str(refusal)) from None
        except processing.ProcessingFailed as fault:
            raise pb_utils.TritonModelException(f"Refused: bls: {fault}.") from None
        self._outputs_of = _outputs_by_model(archive, manifest)
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
                self._processing.call(tensors, self._call_model),
                self._outputs,
                rows,
                processing.EXECUTE,
            )
        except ValueError as refusal:
            return _error(str(refusal), pb_utils.TritonError.INVALID_ARG)
        except (processing.ProcessingFailed, answer_check.WrongAnswer) as fault:
            print(f"{fault}.", file=sys.stderr, flush=True)
            return _error(f"{fault}.", pb_utils.TritonError.INTERNAL)
        return pb_utils.InferenceResponse(
            [pb_utils.Tensor(name, array) for name, array in answer.items()]
        )

    def _call_model(self, name: str, tensors: Mapping[str, Any]) -> dict[str, Any]:
        """Return a model's answer. Raises ProcessingFailed, and ValueError for bad inputs."""
        if name not in self._outputs_of:
            known = ", ".join(self._outputs_of)
            raise processing.ProcessingFailed(
                f"execute() called {name}, which is none of its models: {known}"
            )
        request = pb_utils.InferenceRequest(
            model_name=name,
            requested_output_names=self._outputs_of[name],
            inputs=[pb_utils.Tensor(key, array) for key, array in tensors.items()],
            # A plan's answer lies in the GPU's memory otherwise, where numpy cannot read it.
            preferred_memory=pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_CPU),
        )
        response = request.exec(decoupled=False)
        if response.has_error():
            fault = response.error()
            sentence = f"{name} answered: {fault.message().rstrip('.')}"
            if fault.code() == pb_utils.TritonError.INVALID_ARG:
                raise ValueError(sentence)
            raise processing.ProcessingFailed(sentence)
        return {tensor.name(): tensor.as_numpy() for tensor in response.output_tensors()}


def _outputs_by_model(archive: Path, manifest: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the outputs of each model that may be called, by the manifest of each."""
    found = {}
    for name in manifest["ensemble"]["steps"]:
        step = manifest_check.step_manifest(archive, manifest, name)
        found[name] = [tensor["name"] for tensor in step["outputs"]]
    return found


def _error(sentence: str, code: int) -> Any:
    return pb_utils.InferenceResponse([], pb_utils.TritonError(sentence, code))
