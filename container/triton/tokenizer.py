"""The tokenizer of an ensemble inside Triton: verifies the archive's passport, then turns texts
into the engine's inputs.

Copied into the engine archive as `<model>_tokenizer/1/model.py`, with `passport.py` beside it. Each
request's texts are padded
to the next of a few lengths, whatever its neighbours are: so the engine's batcher can put requests
together, its CUDA graphs
fit, and an answer does not depend on who else asked. Never run beside a real plan; only its look at
the GPU met a real driver.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import passport  # type: ignore[import-not-found]
import triton_python_backend_utils as pb_utils
from tokenizers import Encoding, Tokenizer

TENSORRT = "tensorrt"
READERS = {
    "input_ids": lambda encoding: encoding.ids,
    "attention_mask": lambda encoding: encoding.attention_mask,
    "token_type_ids": lambda encoding: encoding.type_ids,
}


def refuse_foreign_device(manifest: Mapping[str, Any]) -> None:
    """A plan is for one TensorRT build and compute capability; the version is checked as far as the
    library tells it.
    """
    if manifest["runtime"]["name"] != TENSORRT:
        return
    wanted = manifest["runtime"]["version"]
    version = passport.running_tensorrt(wanted)
    capability = passport.running_compute_capability()
    passport.refuse_foreign_runtime(
        manifest, TENSORRT, wanted if version is None else version, capability
    )


def row_tokenizer(path: Path, max_tokens: int | None) -> tuple[Tokenizer, int]:
    """The packaged tokenizer without its padding, and the token that it pads with."""
    tokenizer = Tokenizer.from_file(str(path))
    padding = 0 if tokenizer.padding is None else int(tokenizer.padding["pad_id"])
    tokenizer.no_padding()
    if max_tokens is not None:
        tokenizer.enable_truncation(max_length=max_tokens)
    return tokenizer, padding


class TritonPythonModel:
    """What Triton's python backend calls: one instance of the tokenizer."""

    def initialize(self, args: Mapping[str, str]) -> None:
        """Verifies the whole archive and loads the tokenizer; refuses in one sentence."""
        config = json.loads(args["model_config"])
        folder = Path(args["model_repository"])
        try:
            manifest = passport.verified_manifest(folder.parent)
            refuse_foreign_device(manifest)
        except passport.Refused as refusal:
            raise pb_utils.TritonModelException(str(refusal)) from None
        self._types = {
            each["name"]: pb_utils.triton_string_to_numpy(each["data_type"])
            for each in config["output"]
        }
        path = folder / args["model_version"] / Path(manifest["tokenizer_file"]).name
        self._tokenizer, self._padding = row_tokenizer(path, passport.longest_sequence(manifest))
        self._buckets = passport.sequence_buckets(manifest)
        self._tokenizer.encode_batch_fast(["warm up"])

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """One response per request, in order: all good requests are tokenized together, a bad one
        fails alone.
        """
        read = [self._texts(request) for request in requests]
        encodings = iter(
            self._tokenizer.encode_batch_fast(
                [text for texts in read if isinstance(texts, list) for text in texts]
            )
        )
        return [
            self._response([next(encodings) for _ in each]) if isinstance(each, list) else each
            for each in read
        ]

    def _texts(self, request: Any) -> Any:
        """The texts of a request, or the error response that it gets."""
        tensor = pb_utils.get_input_tensor_by_name(request, "text")
        if tensor is None:
            return _refusal("Input 'text' is missing.")
        try:
            return [
                item.decode("utf-8") if isinstance(item, bytes) else str(item)
                for item in tensor.as_numpy().reshape(-1)
            ]
        except UnicodeDecodeError as fault:
            return _refusal(
                f"Input 'text' holds text that is not UTF-8: {fault.reason} at byte {fault.start}."
            )

    def _response(self, encodings: Sequence[Encoding]) -> Any:
        length = self._length(max(map(len, encodings), default=1))
        tensors = [
            pb_utils.Tensor(name, self._array(name, encodings, length)) for name in self._types
        ]
        return pb_utils.InferenceResponse(tensors)

    def _array(self, name: str, encodings: Sequence[Encoding], length: int) -> Any:
        rows = np.full(
            (len(encodings), length),
            self._padding if name == "input_ids" else 0,
            dtype=self._types[name],
        )
        for index, encoding in enumerate(encodings):
            rows[index, : len(encoding)] = READERS[name](encoding)
        return rows

    def _length(self, longest: int) -> int:
        """The next bucket; the text is cut to the last one already."""
        place = bisect_left(self._buckets, longest)
        return self._buckets[place] if place < len(self._buckets) else longest


def _refusal(sentence: str) -> Any:
    return pb_utils.InferenceResponse(
        [], pb_utils.TritonError(sentence, pb_utils.TritonError.INVALID_ARG)
    )
