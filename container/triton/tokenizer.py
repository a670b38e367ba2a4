"""Turns texts into the engine's inputs inside Triton: the tokenizer of an ensemble.

Engine archives carry this file as `<model>_tokenizer/1/model.py`, with `manifest_check.py` and
`heads.py` beside it. A request's texts are padded to the next of a few lengths, whatever other
requests hold: so Triton can batch requests, CUDA graphs fit, and an answer does not depend on other
requests. It was never run with a real TensorRT plan; only its query of the GPU was run with a real
driver.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import heads  # type: ignore[import-not-found]
import manifest_check  # type: ignore[import-not-found]
import numpy as np
import triton_python_backend_utils as pb_utils
from tokenizers import Encoding, Tokenizer

SPANS = "spans"
"""The output that only the head of a token classifier reads: where in the text each token lies."""
READERS = {
    "input_ids": lambda encoding: encoding.ids,
    "attention_mask": lambda encoding: encoding.attention_mask,
    "token_type_ids": lambda encoding: encoding.type_ids,
}


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
        self._inputs = tuple(tensor["name"] for tensor in config["input"])
        self._buckets = manifest_check.sequence_buckets(manifest)
        self._longest = manifest_check.longest_sequence(manifest)
        self._truncates = manifest.get("auto_truncate", True)
        self._prompts = manifest.get("prompts")
        path = folder / args["model_version"] / Path(manifest["tokenizer_file"]).name
        self._load_tokenizer(path)

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """Return one response per request, in order: all texts are tokenized in one call.

        A request that cannot be read gets an error response; the others are answered.
        """
        inputs = [self._texts(request) for request in requests]
        encodings = iter(
            self._encode([text for texts in inputs if isinstance(texts, list) for text in texts])
        )
        return [
            self._response([next(encodings) for _ in texts]) if isinstance(texts, list) else texts
            for texts in inputs
        ]

    def _load_tokenizer(self, path: Path) -> None:
        """Load the packaged tokenizer without its padding, and run it once."""
        self._tokenizer = Tokenizer.from_file(str(path))
        padding = self._tokenizer.padding
        self._pad_id = 0 if padding is None else int(padding["pad_id"])
        self._tokenizer.no_padding()
        if not self._truncates:
            self._tokenizer.no_truncation()
        elif self._longest is not None:
            self._tokenizer.enable_truncation(max_length=self._longest)
        # Only the slower call knows where in the text a token lies.
        tokenizer = self._tokenizer
        has_spans = SPANS in self._types
        self._encode = tokenizer.encode_batch if has_spans else tokenizer.encode_batch_fast
        self._encode(["warm up"])

    def _texts(self, request: Any) -> Any:
        """Return the texts or pairs of a request, or the error response that it gets."""
        names = self._inputs
        tensors = {name: pb_utils.get_input_tensor_by_name(request, name) for name in names}
        try:
            prefix = manifest_check.prompt_prefix(request.parameters(), self._prompts)
            return heads.request_rows(tensors, prefix)
        except ValueError as fault:
            return _refusal(str(fault))

    def _response(self, encodings: Sequence[Encoding]) -> Any:
        if not self._truncates:
            sentence = manifest_check.over_long_texts(list(map(len, encodings)), self._longest)
            if sentence is not None:
                return _refusal(sentence)
        length = self._bucket(max(map(len, encodings), default=1))
        return pb_utils.InferenceResponse(
            [pb_utils.Tensor(name, self._array(name, encodings, length)) for name in self._types]
        )

    def _array(self, name: str, encodings: Sequence[Encoding], length: int) -> Any:
        if name == SPANS:
            return heads.padded_spans(list(map(heads.token_spans, encodings)), length)
        fill = self._pad_id if name == "input_ids" else 0
        rows = np.full((len(encodings), length), fill, dtype=self._types[name])
        for index, encoding in enumerate(encodings):
            rows[index, : len(encoding)] = READERS[name](encoding)
        return rows

    def _bucket(self, length: int) -> int:
        """Return the smallest bucket of at least this length."""
        place = bisect_left(self._buckets, length)
        return self._buckets[place] if place < len(self._buckets) else length


def _refusal(sentence: str) -> Any:
    return pb_utils.InferenceResponse(
        [], pb_utils.TritonError(sentence, pb_utils.TritonError.INVALID_ARG)
    )
