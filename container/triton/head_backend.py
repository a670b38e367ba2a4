"""Turns a plan's logits into labels and scores inside Triton: the head of an ensemble.

Engine archives carry this file as `<model>_head/1/model.py`, with `manifest_check.py` and
`heads.py` beside it. It was never run with a real TensorRT plan.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import heads  # type: ignore[import-not-found]
import manifest_check  # type: ignore[import-not-found]
import numpy as np
import triton_python_backend_utils as pb_utils

LOGITS, SPANS = "network_logits", "spans"
"""The inputs; a name that no output of the ensemble has, or Triton leaves out what no client asks
for."""


class TritonPythonModel:
    """One instance of the head, as Triton's python backend calls it."""

    def initialize(self, args: Mapping[str, str]) -> None:
        """Read the head of the manifest, whose archive the tokenizer's model checks."""
        archive = Path(args["model_repository"]).parent
        try:
            manifest_check.refuse_misread_tensors(pb_utils.Tensor)
            pin = os.environ.get(manifest_check.PIN) or None
            manifest = manifest_check.read_manifest(archive, pin)
        except manifest_check.Refused as refusal:
            raise pb_utils.TritonModelException(str(refusal)) from None
        self._head = heads.Head(manifest)

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """Return one response per request, in order."""
        return [self._response(request) for request in requests]

    def _response(self, request: Any) -> Any:
        arrays = [pb_utils.get_input_tensor_by_name(request, name) for name in (LOGITS, SPANS)]
        logits, spans = (None if tensor is None else tensor.as_numpy() for tensor in arrays)
        answers = zip(self._head.outputs, self._head.answers(logits, spans), strict=True)
        return pb_utils.InferenceResponse(
            [pb_utils.Tensor(name, np.ascontiguousarray(answer)) for name, answer in answers]
        )
