"""The tokenizer of an ensemble whose long texts are refused instead of cut: a request that has one
fails alone.

Copied into the engine archive as `<model>_tokenizer/1/model.py`, with the tokenizer that cuts, as
`tokenizer.py`, beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tokenizer  # type: ignore[import-not-found]
import triton_python_backend_utils as pb_utils
from over_long import over_long  # type: ignore[import-not-found]
from tokenizers import Encoding


class TritonPythonModel(tokenizer.TritonPythonModel):  # type: ignore[misc]
    """What Triton's python backend calls: one instance of the tokenizer."""

    def initialize(self, args: Mapping[str, str]) -> None:
        """As the one that cuts; the longest of its lengths becomes a limit."""
        super().initialize(args)
        self._tokenizer.no_truncation()

    def _response(self, encodings: Sequence[Encoding]) -> Any:
        sentence = over_long(
            [len(each) for each in encodings], self._buckets[-1] if self._buckets else None
        )
        if sentence is None:
            return super()._response(encodings)
        return pb_utils.InferenceResponse(
            [], pb_utils.TritonError(sentence, pb_utils.TritonError.INVALID_ARG)
        )
