"""Rows of text models: tokens, how texts become them, and how a batch of them is padded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from tokenizers import Encoding, Tokenizer

from container.server.types import Array, Encoded, RequestFault

PROBE = "warm up"
CHARACTERS_OF_A_TEXT = 32
LISTED_TEXTS = 5
"""Texts that are too long, told one by one."""


class Tokens:
    """One text's tokens: `ids` int32 [tokens], `type_ids` the same or `None` when all are 0."""

    __slots__ = ("ids", "type_ids")

    def __init__(self, ids: Array, type_ids: Array | None = None) -> None:
        self.ids = ids
        self.type_ids = type_ids

    def __len__(self) -> int:
        return len(self.ids)


class TextEncoder:
    """The packaged tokenizer without its padding; a text longer than the engine's longest sequence
    is cut, or refused.
    """

    def __init__(self, path: Path, *, max_tokens: int | None, truncates: bool = True) -> None:
        self._tokenizer = Tokenizer.from_file(str(path))
        self._tokenizer.no_padding()
        self._max_tokens, self._truncates = max_tokens, truncates
        if not truncates:
            self._tokenizer.no_truncation()
        elif max_tokens is not None:
            self._tokenizer.enable_truncation(max_length=max_tokens)
        self._typed = any(any(each.type_ids) for each in self._tokenizer.encode_batch([PROBE]))
        """Whether this tokenizer gives a single text's tokens types other than 0."""

    def encode(self, texts: Sequence[str]) -> Encoded:
        """One row of tokens per text; releases the interpreter while it works.

        Raises RequestFault for what it does not cut.
        """
        found = self._tokenizer.encode_batch_fast(list(texts))
        truncated = self._cut(found) if self._truncates else self._uncut(found)
        return Encoded([self._row(each) for each in found], truncated)

    def probe(self) -> list[Tokens]:
        """A row that every sound engine answers, cut where the engine takes fewer tokens."""
        (found,) = self._tokenizer.encode_batch_fast([PROBE])
        if self._max_tokens is not None:
            found.truncate(self._max_tokens)
        return [self._row(found)]

    def cost(self, texts: Sequence[str]) -> int:
        """Characters to tokenize; a text of its own takes as long as some more."""
        return sum(map(len, texts)) + CHARACTERS_OF_A_TEXT * len(texts)

    def _cut(self, found: Sequence[Encoding]) -> int:
        """How many were cut.

        What was cut off is asked for only where a row is full, since asking copies it.
        """
        most = self._max_tokens
        return sum(1 for each in found if (most is None or len(each) == most) and each.overflowing)

    def _uncut(self, found: Sequence[Encoding]) -> int:
        """None is cut. Raises RequestFault for those that are too long."""
        sentence = (
            None
            if self._max_tokens is None
            else over_long_texts([len(each) for each in found], self._max_tokens)
        )
        if sentence is not None:
            raise RequestFault(sentence)
        return 0

    def _row(self, encoding: Encoding) -> Tokens:
        types = np.array(encoding.type_ids, np.int32) if self._typed else None
        return Tokens(np.array(encoding.ids, np.int32), types)


def over_long_texts(lengths: Sequence[int], most: int) -> str | None:
    """What a client is told of texts of more than `most` tokens; None where there is none.

    Triton's models say the same.
    """
    longer = [
        f"text[{place}] has {length}" for place, length in enumerate(lengths) if length > most
    ]
    if not longer:
        return None
    listed = ", ".join(longer[:LISTED_TEXTS])
    more = (
        f" and {len(longer) - LISTED_TEXTS} more are too long" if len(longer) > LISTED_TEXTS else ""
    )
    takes = f"the {most} tokens that the model takes, special tokens included"
    return f"The request holds text of more than {takes}: {listed}{more}; shorten or split what is longer."


def pad_rows(
    rows: Sequence[Tokens], *, shape: tuple[int, int], dtype: type[np.integer] = np.int64
) -> dict[str, Array]:
    """The network's three inputs of `shape` (rows, tokens); places and rows beyond are masked, and
    their ids are 0.

    Rows beyond the given ones have one unmasked token, so that no engine divides by a row's zero
    tokens.
    """
    lengths: Array = np.zeros(shape[0], np.int64)
    lengths[: len(rows)] = [len(row) for row in rows]
    mask = np.arange(shape[1]) < lengths[:, None]
    feed: dict[str, Array] = {
        name: np.zeros(shape, dtype) for name in ("input_ids", "token_type_ids")
    }
    feed["input_ids"][mask] = np.concatenate([row.ids for row in rows])
    if any(row.type_ids is not None for row in rows):
        feed["token_type_ids"][mask] = np.concatenate(
            [np.zeros(len(row), np.int32) if row.type_ids is None else row.type_ids for row in rows]
        )
    mask[len(rows) :, 0] = True
    return feed | {"attention_mask": mask.astype(dtype)}
