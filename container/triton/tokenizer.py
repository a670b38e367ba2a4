"""Turns texts into the engine's inputs inside Triton: the tokenizer of an ensemble.

Engine archives carry this file as `<model>_tokenizer/1/model.py`, with `manifest_check.py` and
`heads.py` beside it. A request's texts are padded to the next of a few lengths, whatever other
requests hold: so Triton can batch requests, CUDA graphs fit, and an answer does not depend on other
requests.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import heads  # type: ignore[import-not-found]
import manifest_check  # type: ignore[import-not-found]
import triton_python_backend_utils as pb_utils
from tokenizers import Tokenizer

SPANS = "spans"
"""The output that only the head of a token classifier reads: where in the text each token lies."""


class TritonPythonModel:
    """One instance of the tokenizer, as Triton's python backend calls it."""

    def initialize(self, args: Mapping[str, str]) -> None:
        """Check the whole archive and load the tokenizer; a refusal is one sentence."""
        config = json.loads(args["model_config"])
        folder = Path(args["model_repository"])
        try:
            manifest_check.refuse_misread_tensors(pb_utils.Tensor)
            manifest = manifest_check.verified_manifest(folder.parent)
            manifest_check.refuse_foreign_device(manifest)
        except manifest_check.Refused as refusal:
            raise pb_utils.TritonModelException(str(refusal)) from None
        self._types = {
            output["name"]: pb_utils.triton_string_to_numpy(output["data_type"])
            for output in config["output"]
        }
        self._buckets = manifest_check.sequence_buckets(manifest)
        path = folder / args["model_version"] / Path(manifest["tokenizer_file"]).name
        self._texts = heads.TextReader(
            Tokenizer.from_file(str(path)),
            manifest,
            [tensor["name"] for tensor in config["input"]],
            has_spans=SPANS in self._types,
        )

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """Return one response per request, in order: all texts are tokenized in one call.

        A request that cannot be read gets an error response; the others are answered.
        """
        values = self._texts.read(requests, pb_utils.get_input_tensor_by_name)
        return [self._response(value) for value in values]

    def _response(self, encodings: Any) -> Any:
        if isinstance(encodings, ValueError):
            code = pb_utils.TritonError.INVALID_ARG
            return pb_utils.InferenceResponse([], pb_utils.TritonError(str(encodings), code))
        length = self._bucket(max(map(len, encodings), default=1))
        return pb_utils.InferenceResponse(
            [pb_utils.Tensor(name, self._array(name, encodings, length)) for name in self._types]
        )

    def _array(self, name: str, encodings: Sequence[Any], length: int) -> Any:
        if name == SPANS:
            return heads.padded_spans(list(map(heads.token_spans, encodings)), length)
        return self._texts.array(name, encodings, length, self._types[name])

    def _bucket(self, length: int) -> int:
        """Return the smallest bucket of at least this length."""
        place = bisect_left(self._buckets, length)
        return self._buckets[place] if place < len(self._buckets) else length
