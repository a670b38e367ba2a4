"""What heads and images add to engines: encoders of their rows, and classes of tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Encoding

from container.server.codecs.tensors import TensorRow
from container.server.engines.buckets import Buckets
from container.server.engines.shaping import Tensor, TokenShaping
from container.server.engines.tokens import (
    CHARACTERS_AT_ONCE,
    GROWTH,
    MOST_CHARACTERS,
    PROBE,
    TextEncoder,
    Tokens,
    beginning_of,
    fills_sequence,
)
from container.server.types import Array, Arrays, Encoded, RequestFault, TokenText
from container.triton.heads import token_classes, token_spans
from container.triton.images import ImageProcessor as Processor
from onboarding.manifest import ImageProcessor

PAIR_CHARACTERS = CHARACTERS_AT_ONCE // 2
"""Of each text of a pair: what lies behind them is read only where they fill no sequence."""


class PairEncoder(TextEncoder):
    """Pairs of a query and a text; of a pair that is too long the longer text is cut first."""

    def __init__(self, path: Path, *, max_tokens: int | None, truncates: bool = True) -> None:
        super().__init__(path, max_tokens=max_tokens, truncates=truncates)
        (probe,) = self._tokenizer.encode_batch([(PROBE, PROBE)])
        self._typed = any(probe.type_ids)
        self._whole_characters = CHARACTERS_AT_ONCE

    def _characters(self, text: Any) -> int:
        return sum(map(len, text))

    def _encodings(self, texts: list[Any]) -> list[Encoding]:
        if self._truncates:
            texts = [(self._read_part(query), self._read_part(text)) for query, text in texts]
        return list(self._tokenizer.encode_batch_fast(texts))

    def _token_count(self, text: Any) -> int:
        special: int = self._tokenizer.num_special_tokens_to_add(True)
        alone: int = self._tokenizer.num_special_tokens_to_add(False)
        return special + sum(TextEncoder._token_count(self, part) - alone for part in text)

    def _read_part(self, text: str) -> str:
        """Return as much of a text as surely fills the engine's sequence, or all of it."""
        characters = PAIR_CHARACTERS
        beginning = beginning_of(text, characters)
        while len(beginning) < len(text) and characters < MOST_CHARACTERS:
            (encoding,) = self._tokenizer.encode_batch_fast([beginning])
            if fills_sequence(encoding, beginning):
                break
            characters = min(characters * GROWTH, MOST_CHARACTERS)
            beginning = beginning_of(text, characters)
        return beginning


class SpannedTokens(Tokens):
    """One text's tokens, and `spans` int32 [tokens, 2]: where each lies in the text."""

    __slots__ = ("spans",)

    def __init__(self, tokens: Tokens, spans: Array) -> None:
        super().__init__(tokens.ids, tokens.type_ids)
        self.spans = spans


class SpanEncoder(TextEncoder):
    """TokenTexts: encoding one writes down where its tokens lie."""

    def __init__(self, path: Path, *, max_tokens: int | None, truncates: bool = True) -> None:
        super().__init__(path, max_tokens=max_tokens, truncates=truncates)
        # The faster call does not know where in the text a token lies.
        self._encode = self._tokenizer.encode_batch

    def encode(self, texts: Sequence[Any]) -> Encoded:
        encoded = super().encode([text.text for text in texts])
        for text, row in zip(texts, encoded.rows, strict=True):
            text.spans = row.spans
        return encoded

    def cost(self, texts: Sequence[TokenText]) -> int:
        return super().cost([text.text for text in texts])

    def _row(self, encoding: Encoding) -> Tokens:
        return SpannedTokens(super()._row(encoding), token_spans(encoding))


class TokenClassShaping(TokenShaping):
    """Texts whose first output is logits [rows, tokens, labels].

    Answered are int32 classes and float32 probabilities, [rows, longest]: batches are padded to
    different lengths, and the rows of one request may run in several of them.
    """

    def __init__(
        self,
        buckets: Buckets | None,
        *,
        inputs: Mapping[str, Tensor],
        outputs: Sequence[str],
        longest: int,
    ) -> None:
        """`longest` is the most tokens of a row."""
        super().__init__(buckets, inputs=inputs, outputs=outputs)
        self._longest = longest

    def answer(self, outputs: Mapping[str, Array]) -> Arrays:
        return tuple(map(self._fill, token_classes(super().answer(outputs)[0])))

    def _fill(self, values: Array) -> Array:
        whole: Array = np.zeros((len(values), self._longest), values.dtype)
        whole[:, : values.shape[1]] = values
        return whole


UNITS_OF_A_FILE = 5_000
"""Costs of a file beside its pixels: more than is ever decoded on the event loop."""


class ImageEncoder:
    """The packaged processor: decodes files one after the other, in the thread that calls."""

    def __init__(self, description: ImageProcessor) -> None:
        self._processor = Processor(description.model_dump(mode="json"))

    @property
    def most_rows(self) -> int:
        """Rows of one request, and of the queue."""
        return self._processor.most_rows

    def encode(self, files: Sequence[bytes]) -> Encoded:
        """Return one row of float32 pixels per file. Raises RequestFault."""
        try:
            rows = self._processor.rows(files)
        except ValueError as fault:
            raise RequestFault(str(fault)) from fault
        return Encoded([(row,) for row in rows], 0)

    def probe(self) -> list[TensorRow]:
        """Return a row of zeros."""
        return [(np.zeros(self._processor.shape, np.float32),)]

    def cost(self, files: Sequence[bytes]) -> int:
        """Return the pixels of all rows, and something for each file."""
        return len(files) * (prod(self._processor.shape) + UNITS_OF_A_FILE)
