"""The CPU twin whose long texts are refused instead of cut: a request that has one fails alone.

Copied into the engine archive as `<model>/1/model.py`, with the twin that cuts, as `cpu_twin.py`,
beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import cpu_twin  # type: ignore[import-not-found]
import numpy as np
import passport  # type: ignore[import-not-found]
from over_long import over_long  # type: ignore[import-not-found]
from tokenizers import Encoding, Tokenizer

READERS = {
    "input_ids": lambda encoding: encoding.ids,
    "attention_mask": lambda encoding: encoding.attention_mask,
    "token_type_ids": lambda encoding: encoding.type_ids,
}


class WholeTexts(cpu_twin.Texts):  # type: ignore[misc]
    """Requests of texts, each tokenized by itself; padded to the longest of the batch."""

    def __init__(
        self, path: Path, inputs: Mapping[str, type], answer: str, most: int | None
    ) -> None:
        tokenizer = Tokenizer.from_file(str(path))
        self._padding = 0 if tokenizer.padding is None else int(tokenizer.padding["pad_id"])
        tokenizer.no_padding()
        tokenizer.no_truncation()
        self._most = most
        super().__init__(tokenizer, inputs, answer)

    def read(self, request: Any) -> list[Encoding]:
        """The tokens of each text of one request.

        Raises ValueError with the sentence for the client.
        """
        encodings: list[Encoding] = self._tokenizer.encode_batch_fast(super().read(request))
        sentence = over_long([len(each) for each in encodings], self._most)
        if sentence is not None:
            raise ValueError(sentence)
        return encodings

    def feed(self, requests: Sequence[Sequence[Encoding]]) -> dict[str, Any]:
        """The network's inputs for the texts of all requests."""
        encodings = [encoding for request in requests for encoding in request]
        longest = max(map(len, encodings), default=1)
        return {name: self._array(name, encodings, longest) for name in self._inputs}

    def _array(self, name: str, encodings: Sequence[Encoding], longest: int) -> Any:
        rows = np.full(
            (len(encodings), longest),
            self._padding if name == "input_ids" else 0,
            dtype=self._inputs[name],
        )
        for place, encoding in enumerate(encodings):
            rows[place, : len(encoding)] = READERS[name](encoding)
        return rows


class TritonPythonModel(cpu_twin.TritonPythonModel):  # type: ignore[misc]
    """What Triton's python backend calls: one instance of the engine."""

    def _of(
        self, manifest: Mapping[str, Any], config: Mapping[str, Any], folder: Path
    ) -> WholeTexts:
        path = folder / Path(manifest["tokenizer_file"]).name
        inputs = cpu_twin.input_types(self._engine, {})
        return WholeTexts(
            path, inputs, config["output"][0]["name"], passport.longest_sequence(manifest)
        )
