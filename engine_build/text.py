"""Texts as a network's inputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from engine_build.errors import SourceFault

Feed = dict[str, np.ndarray[Any, Any]]


class TextEncoder:
    """A checkpoint's tokenizer, padding to the longest text of a batch and cutting at the longest sequence served."""

    def __init__(self, path: Path, *, inputs: Sequence[str], longest: int) -> None:
        try:
            self._tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:
            raise SourceFault(f"{path.name} cannot be read ({error}); the source must bring a fast tokenizer's file.") from error
        padding = self._tokenizer.padding or {}
        kept = {name: padding[name] for name in ("pad_id", "pad_token", "pad_type_id") if name in padding}
        self._tokenizer.enable_padding(**kept)
        self._tokenizer.enable_truncation(max_length=longest)
        self._inputs = tuple(inputs)

    def feed(self, texts: Sequence[str]) -> Feed:
        """int64 arrays [texts, longest of them], by input name."""
        encodings = self._tokenizer.encode_batch_fast(list(texts))
        arrays = {
            "input_ids": [encoding.ids for encoding in encodings],
            "attention_mask": [encoding.attention_mask for encoding in encodings],
            "token_type_ids": [encoding.type_ids for encoding in encodings],
        }
        return {name: np.array(arrays[name], dtype=np.int64) for name in self._inputs}

    def feeds(self, texts: Sequence[str], batch: int) -> Iterator[Feed]:
        """Batches of texts in order."""
        for begin in range(0, len(texts), batch):
            yield self.feed(texts[begin : begin + batch])

    def largest_id(self, texts: Sequence[str]) -> int:
        """The largest token number of some texts."""
        return max(int(max(encoding.ids)) for encoding in self._tokenizer.encode_batch_fast(list(texts)))


def exact_feed(encoder: TextEncoder, texts: Sequence[str], batch: int, sequence: int) -> Feed:
    """Real tokens, repeated until every row has exactly `sequence` of them and none is padding."""
    feed = encoder.feed(texts)
    real = feed["input_ids"][feed["attention_mask"] == 1]
    ids: np.ndarray[Any, Any] = np.resize(real, (batch, sequence))
    shaped = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
    return {name: shaped[name] for name in feed}
