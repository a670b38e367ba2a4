"""Turns image files into the plan's input inside Triton: the processor of an ensemble.

Engine archives of image classifiers carry this file as `<model>_processor/1/model.py`, with
`manifest_check.py`, `heads.py`, `images.py` and `image_requests.py` beside it. It was never run
with a real TensorRT plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import image_requests  # type: ignore[import-not-found]
import manifest_check  # type: ignore[import-not-found]
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """One instance of the processor, as Triton's python backend calls it."""

    def initialize(self, args: Mapping[str, str]) -> None:
        """Check the whole archive and read its processor; a refusal is one sentence."""
        folder = Path(args["model_repository"])
        try:
            manifest_check.refuse_misread_tensors(pb_utils.Tensor)
            manifest = manifest_check.verified_manifest(folder.parent)
            manifest_check.refuse_foreign_device(manifest)
        except manifest_check.Refused as refusal:
            raise pb_utils.TritonModelException(str(refusal)) from None
        self._requests = image_requests.Images(manifest)

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """Return one response per request, in order; one that cannot be read gets an error."""
        return [self._response(value) for value in self._requests.read(requests)]

    def _response(self, value: Any) -> Any:
        if isinstance(value, ValueError):
            code = pb_utils.TritonError.INVALID_ARG
            return pb_utils.InferenceResponse([], pb_utils.TritonError(str(value), code))
        feed = self._requests.feed([value])
        return pb_utils.InferenceResponse(
            [pb_utils.Tensor(name, array) for name, array in feed.items()]
        )
