"""Texts as a network's inputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from tokenizers import Encoding

from engine_build.datasets.dataset import ATTENTION_MASK, Array, Feed, Sample, Shape
from engine_build.datasets.tokenizer import padding, read_tokenizer

TEXT_INPUTS = ("input_ids", ATTENTION_MASK, "token_type_ids")


class TextEncoder:
    """A checkpoint's tokenizer.

    Pads to the longest text of a batch, and cuts at the longest sequence served.
    """

    def __init__(self, path: Path, *, inputs: Sequence[str], longest: int) -> None:
        self._tokenizer = read_tokenizer(path)
        self._tokenizer.enable_padding(**padding(self._tokenizer))
        self._tokenizer.enable_truncation(max_length=longest)
        self.inputs = tuple(inputs)
        self.longest = longest

    def feed(self, samples: Sequence[Sample]) -> Feed:
        """int64 arrays [texts, longest of them], by input name."""
        encodings = self._tokenizer.encode_batch_fast([_text(sample) for sample in samples])
        arrays = {
            "input_ids": [encoding.ids for encoding in encodings],
            ATTENTION_MASK: [encoding.attention_mask for encoding in encodings],
            "token_type_ids": [encoding.type_ids for encoding in encodings],
        }
        return {name: np.array(arrays[name], dtype=np.int64) for name in self.inputs}

    def feeds(self, samples: Sequence[Sample], batch: int) -> Iterator[Feed]:
        """Batches of texts in order."""
        for begin in range(0, len(samples), batch):
            yield self.feed(samples[begin : begin + batch])

    def shaped(self, samples: Sequence[Sample], shape: Shape) -> Feed:
        """Real tokens, repeated until every row has exactly that many and none is padding."""
        assert shape.sequence is not None
        feed = self.feed(samples)
        real = feed["input_ids"][feed[ATTENTION_MASK] == 1]
        ids: Array = np.resize(real, (shape.batch, shape.sequence))
        shaped = {
            "input_ids": ids,
            ATTENTION_MASK: np.ones_like(ids),
            "token_type_ids": np.zeros_like(ids),
        }
        return {name: shaped[name] for name in feed}

    def length(self, sample: Sample) -> int:
        """Characters, which order texts nearly as tokens do and cost nothing to count."""
        return len(_text(sample))

    def largest_token(self) -> Feed:
        """One row, of the vocabulary's last token alone.

        What a network of another vocabulary fails on.
        """
        largest = max(self._tokenizer.get_vocab(with_added_tokens=True).values())
        ids: Array = np.full((1, 1), largest, dtype=np.int64)
        row = {
            "input_ids": ids,
            ATTENTION_MASK: np.ones_like(ids),
            "token_type_ids": np.zeros_like(ids),
        }
        return {name: row[name] for name in self.inputs}

    def token_counts(self, samples: Sequence[Sample]) -> list[int]:
        """Tokens of each text, as served: cut at the longest sequence."""
        return [sum(encoding.attention_mask) for encoding in self._encodings(samples)]

    def cut(self, samples: Sequence[Sample]) -> int:
        """How many of the texts are longer than the longest sequence."""
        return sum(bool(encoding.overflowing) for encoding in self._encodings(samples))

    def _encodings(self, samples: Sequence[Sample]) -> list[Encoding]:
        encodings: list[Encoding] = self._tokenizer.encode_batch(
            [_text(sample) for sample in samples]
        )
        return encodings


def _text(sample: Sample) -> str:
    assert isinstance(sample, str)
    return sample
