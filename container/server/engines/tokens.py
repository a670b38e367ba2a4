"""Rows of text models: tokens, how texts become them, and how a batch of them is padded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Encoding, Tokenizer

from container.server.types import Array, Encoded, RequestFault
from container.triton.manifest_check import over_long_texts

PROBE = "warm up"
CHARACTERS_OF_A_TEXT = 32
CHARACTERS_AT_ONCE = 100_000
"""Characters of one call of the tokenizer, which takes up to 505 bytes of memory for each."""
MOST_CHARACTERS = 3_000_000
"""Characters that are read of a text that is cut, though they fill no sequence: a word of a
million letters is one token, and takes about 65 bytes of memory for each.
"""
BEGINNING_CHARACTERS, BEGINNING_CHARACTERS_A_TOKEN, GROWTH = 512, 8, 16
"""A long text is first read as far as this and so much for each token that the engine takes."""


class Tokens:
    """One text's tokens: `ids` int32 [tokens], `type_ids` the same or `None` when all are 0."""

    __slots__ = ("ids", "type_ids")

    def __init__(self, ids: Array, type_ids: Array | None = None) -> None:
        self.ids = ids
        self.type_ids = type_ids

    def __len__(self) -> int:
        return len(self.ids)


class TextEncoder:
    """The packaged tokenizer without its padding.

    A text over the longest sequence is cut, or refused.
    """

    def __init__(self, path: Path, *, max_tokens: int | None, truncates: bool = True) -> None:
        self._tokenizer = Tokenizer.from_file(str(path))
        self._tokenizer.no_padding()
        self._encode = self._tokenizer.encode_batch_fast
        self._max_tokens, self._truncates = max_tokens, truncates
        if not truncates:
            self._tokenizer.no_truncation()
        elif max_tokens is not None:
            self._tokenizer.enable_truncation(max_length=max_tokens)
        self._typed = any(
            any(encoding.type_ids) for encoding in self._tokenizer.encode_batch([PROBE])
        )
        """Whether this tokenizer gives a single text's tokens types other than 0."""
        limit = self._tokenizer.truncation
        self._whole_characters = CHARACTERS_AT_ONCE
        """Longer texts are tokenized by their beginnings, or counted in pieces."""
        if truncates and limit is not None:
            length = BEGINNING_CHARACTERS + BEGINNING_CHARACTERS_A_TOKEN * limit["max_length"]
            self._whole_characters = min(CHARACTERS_AT_ONCE, length)

    def encode(self, texts: Sequence[Any]) -> Encoded:
        """Return one row of tokens per text; the interpreter is free while the tokenizer works.

        Texts are tokenized a bounded number of characters at once. Raises RequestFault for texts
        that are too long and not cut.
        """
        if not self._truncates and any(
            self._characters(text) > CHARACTERS_AT_ONCE for text in texts
        ):
            self._refuse_over_long([self._token_count(text) for text in texts])
        rows: list[Tokens] = []
        truncated = 0
        for group in self._groups(texts):
            encodings = self._encodings(group)
            if self._truncates:
                truncated += self._cut(encodings)
            else:
                self._refuse_over_long([len(encoding) for encoding in encodings])
            rows += [self._row(encoding) for encoding in encodings]
        return Encoded(rows, truncated)

    def probe(self) -> list[Tokens]:
        """Return a row that every sound engine answers, cut where it takes fewer tokens."""
        (encoding,) = self._encode([PROBE])
        if self._max_tokens is not None:
            encoding.truncate(self._max_tokens)
        return [self._row(encoding)]

    def cost(self, texts: Sequence[Any]) -> int:
        """Return the characters to tokenize; each text costs some more."""
        return sum(map(self._characters, texts)) + CHARACTERS_OF_A_TEXT * len(texts)

    def _characters(self, text: Any) -> int:
        return len(text)

    def _cut(self, encodings: Sequence[Encoding]) -> int:
        """Return how many texts were cut; reading the overflow copies it, so of full rows only."""
        most = self._max_tokens
        return sum(
            1
            for encoding in encodings
            if (most is None or len(encoding) == most) and encoding.overflowing
        )

    def _groups(self, texts: Sequence[Any]) -> Iterator[list[Any]]:
        """Yield the texts in order, in groups of a bounded number of characters."""
        group: list[Any] = []
        characters = 0
        for text in texts:
            size = min(self._characters(text), self._whole_characters)
            if group and characters + size > CHARACTERS_AT_ONCE:
                yield group
                group, characters = [], 0
            group.append(text)
            characters += size
        if group:
            yield group

    def _encodings(self, texts: list[Any]) -> list[Encoding]:
        """Return the tokens of texts, which are read no further than fills the engine's sequence.

        A beginning that is read ends where a word does. A text without spaces must fill the
        sequence twice: its last tokens could be others if more of it were read.
        """
        if not self._truncates:
            return list(self._encode(texts))
        beginnings = [beginning_of(text, self._whole_characters) for text in texts]
        encodings = list(self._encode(beginnings))
        for index, (text, beginning) in enumerate(zip(texts, beginnings, strict=True)):
            characters = self._whole_characters
            while (
                len(beginning) < len(text)
                and characters < MOST_CHARACTERS
                and not fills_sequence(encodings[index], beginning)
            ):
                characters = min(characters * GROWTH, MOST_CHARACTERS)
                beginning = beginning_of(text, characters)
                (encodings[index],) = self._encode([beginning])
        return encodings

    def _refuse_over_long(self, lengths: Sequence[int]) -> None:
        sentence = over_long_texts(lengths, self._max_tokens)
        if sentence is not None:
            raise RequestFault(sentence)

    def _token_count(self, text: Any) -> int:
        """Return a text's tokens, special ones included."""
        special: int = self._tokenizer.num_special_tokens_to_add(False)
        count = special
        while text:
            piece = text[:CHARACTERS_AT_ONCE]
            if len(piece) < len(text) and " " in piece[1:]:
                piece = piece[: piece.rindex(" ")]
            count += len(self._tokenizer.encode_batch_fast([piece])[0]) - special
            text = text[len(piece) :]
        return count

    def _row(self, encoding: Encoding) -> Tokens:
        types = np.array(encoding.type_ids, np.int32) if self._typed else None
        return Tokens(np.array(encoding.ids, np.int32), types)


def beginning_of(text: str, characters: int) -> str:
    """Return as many whole words as fit, or as many characters of a text without spaces."""
    if len(text) <= characters:
        return text
    words = text[:characters].rpartition(" ")[0].rstrip()
    return words or text[:characters]


def fills_sequence(encoding: Encoding, beginning: str) -> bool:
    """True when the tokens that are kept do not depend on what follows the beginning."""
    rest = sum(map(len, encoding.overflowing))
    return rest > 0 and (" " in beginning or rest >= len(encoding))


def pad_rows(rows: Sequence[Tokens], *, shape: tuple[int, int]) -> dict[str, Array]:
    """Return the network's three inputs, int64 of `shape` (rows, tokens), padded with 0 and masked.

    Added rows have one unmasked token, so that no engine divides by a row's zero tokens.
    """
    if len(rows) == shape[0] == 1:  # the same as below, in less than half of the time
        return _pad_row(rows[0], shape)
    lengths: Array = np.zeros(shape[0], np.int64)
    lengths[: len(rows)] = [len(row) for row in rows]
    mask = np.arange(shape[1]) < lengths[:, None]
    feed: dict[str, Array] = {
        name: np.zeros(shape, np.int64) for name in ("input_ids", "token_type_ids")
    }
    feed["input_ids"][mask] = np.concatenate([row.ids for row in rows])
    if any(row.type_ids is not None for row in rows):
        feed["token_type_ids"][mask] = np.concatenate(
            [np.zeros(len(row), np.int32) if row.type_ids is None else row.type_ids for row in rows]
        )
    mask[len(rows) :, 0] = True
    return feed | {"attention_mask": mask.astype(np.int64)}


def _pad_row(row: Tokens, shape: tuple[int, int]) -> dict[str, Array]:
    arrays: Array = np.zeros((3, *shape), np.int64)
    ids, types, mask = arrays
    length = len(row.ids)
    ids[0, :length], mask[0, :length] = row.ids, 1
    if row.type_ids is not None:
        types[0, :length] = row.type_ids
    return {"input_ids": ids, "token_type_ids": types, "attention_mask": mask}
