"""Rows of text models: tokens, how texts become them, and how a batch of them is padded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from tokenizers import Encoding, Tokenizer

from container.server.types import Array

PROBE = "warm up"


class Tokens:
    """One text's tokens: `ids` int32 [tokens], `type_ids` the same or `None` when all are 0."""

    __slots__ = ("ids", "type_ids")

    def __init__(self, ids: Array, type_ids: Array | None = None) -> None:
        self.ids = ids
        self.type_ids = type_ids

    def __len__(self) -> int:
        return len(self.ids)


class TextEncoder:
    """The packaged tokenizer without its padding, cutting texts at the longest sequence that the engine takes."""

    def __init__(self, path: Path, *, max_tokens: int | None) -> None:
        self._tokenizer = Tokenizer.from_file(str(path))
        self._tokenizer.no_padding()
        if max_tokens is not None:
            self._tokenizer.enable_truncation(max_length=max_tokens)
        self._typed = any(any(each.type_ids) for each in self._tokenizer.encode_batch([PROBE]))
        """Whether this tokenizer gives a single text's tokens types other than 0."""

    def encode(self, texts: Sequence[str]) -> list[Tokens]:
        """One row of tokens per text; releases the interpreter while it works."""
        return [self._row(each) for each in self._tokenizer.encode_batch_fast(list(texts))]

    def probe(self) -> list[Tokens]:
        """A row that every sound engine answers."""
        return self.encode([PROBE])

    def cost(self, texts: Sequence[str]) -> int:
        """Characters to tokenize."""
        return sum(map(len, texts))

    def _row(self, encoding: Encoding) -> Tokens:
        types = np.array(encoding.type_ids, np.int32) if self._typed else None
        return Tokens(np.array(encoding.ids, np.int32), types)


def padded(rows: Sequence[Tokens], *, shape: tuple[int, int], dtype: type[np.integer] = np.int64) -> dict[str, Array]:
    """The network's three inputs of `shape` (rows, tokens); places and rows beyond are masked, and their ids are 0.

    Rows beyond the given ones have one unmasked token, so that no engine divides by a row's zero tokens.
    """
    lengths: Array = np.zeros(shape[0], np.int64)
    lengths[: len(rows)] = [len(row) for row in rows]
    mask = np.arange(shape[1]) < lengths[:, None]
    feed: dict[str, Array] = {name: np.zeros(shape, dtype) for name in ("input_ids", "token_type_ids")}
    feed["input_ids"][mask] = np.concatenate([row.ids for row in rows])
    if any(row.type_ids is not None for row in rows):
        feed["token_type_ids"][mask] = np.concatenate(
            [np.zeros(len(row), np.int32) if row.type_ids is None else row.type_ids for row in rows]
        )
    mask[len(rows) :, 0] = True
    return feed | {"attention_mask": mask.astype(dtype)}
