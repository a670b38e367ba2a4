"""How many tokens requests have: counted whole, whatever the engine cuts, in bounded memory."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from engine_build.datasets.text import REPEATED_WORDS
from engine_build.lengths.requests import Request, Text

CHARACTERS_AT_ONCE = 200_000
"""Characters of one call of the tokenizer, which takes up to 505 bytes of memory for each."""
LONGEST_COUNTED = 1_000_000
"""Tokens; longer texts count as this long in percentiles, and whole in sums."""
SAMPLED_PARTS = 256
LARGEST_SAMPLED_BODY = 64 * 1024
PERCENTILES = (1, 5, 25, 50, 75, 90, 95, 99)
WORDS = 16 * REPEATED_WORDS
"""Real tokens that fill timed batches."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """What the engine runs at once of a sampled request, and the request as it came."""

    lengths: tuple[int, ...]
    """Tokens of each text, as the engine sees it: cut at the longest sequence."""
    body: bytes | None
    """None: the request has several parts, or is too large to be kept."""
    content_type: str


@dataclass(kw_only=True)
class Counts:
    """Tokens of every request that was added.

    `longest`: tokens of a row that the engine takes; `truncates`: longer texts are cut, or else
    their request is refused. `most_rows`: of a batch; `splits`: larger requests are answered in
    parts, or else refused.
    """

    longest: int
    truncates: bool
    most_rows: int
    splits: bool
    requests: int = 0
    texts: int = 0
    tokens: int = 0
    lost_tokens: int = 0
    truncated_requests: int = 0
    truncated_texts: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    lengths: Counter[int] = field(default_factory=Counter)
    """Texts by their tokens."""
    parts: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    """By rows and tokens of the longest: how many, and their tokens without padding."""
    sample: list[Part] = field(default_factory=list)
    _seen: int = 0
    _random: random.Random = field(default_factory=lambda: random.Random(0))

    def add(self, request: Request, lengths: Sequence[int]) -> None:
        """Count a request whose texts have so many tokens."""
        self.requests += 1
        self.texts += len(lengths)
        self.tokens += sum(lengths)
        self.lengths.update(min(length, LONGEST_COUNTED) for length in lengths)
        longer = [length for length in lengths if length > self.longest]
        if len(lengths) > self.most_rows and not self.splits:
            self.refused[f"more than the {self.most_rows} texts of a batch"] += 1
            return
        if longer and not self.truncates:
            self.refused[f"a text of more than {self.longest} tokens"] += 1
            return
        self.truncated_requests += bool(longer)
        self.truncated_texts += len(longer)
        self.lost_tokens += sum(longer) - self.longest * len(longer)
        cut = [min(length, self.longest) for length in lengths]
        for begin in range(0, len(cut), self.most_rows):
            self._add_part(request, tuple(cut[begin : begin + self.most_rows]), len(cut))

    def _add_part(self, request: Request, lengths: tuple[int, ...], rows: int) -> None:
        item = self.parts.setdefault((len(lengths), max(lengths)), [0, 0])
        item[0] += 1
        item[1] += sum(lengths)
        # Every part has the same chance (reservoir sampling, Vitter's algorithm R).
        self._seen += 1
        place = len(self.sample)
        if place == SAMPLED_PARTS:
            place = self._random.randrange(self._seen)
            if place >= SAMPLED_PARTS:
                return
        else:
            self.sample.append(Part(lengths=(), body=None, content_type=""))
        data = request.body.data
        is_small = len(data) <= LARGEST_SAMPLED_BODY and rows == len(lengths)
        self.sample[place] = Part(
            lengths=lengths,
            body=data if is_small else None,
            content_type=request.body.content_type,
        )

    def random_sample(self) -> list[Part]:
        """Return the sample in random order: its first parts are a sample too.

        In the order of the file they would be its first lines, which may be its shortest.
        """
        return random.Random(0).sample(self.sample, len(self.sample))

    def as_data(self) -> dict[str, Any]:
        """Return all but the sample, as JSON."""
        return {
            "requests": self.requests,
            "texts": self.texts,
            "tokens": self.tokens,
            "lost_tokens": self.lost_tokens,
            "truncated_requests": self.truncated_requests,
            "truncated_texts": self.truncated_texts,
            "refused": dict(self.refused),
            "percentiles": percentiles(self.lengths),
            "parts": [[*key, *values] for key, values in sorted(self.parts.items())],
        }


def percentiles(lengths: Counter[int]) -> dict[str, float]:
    """Return a histogram in a few numbers; none without texts."""
    if not lengths:
        return {}
    values = np.array(sorted(lengths))
    below = np.cumsum([lengths[int(value)] for value in values])
    total = int(below[-1])
    places = [np.searchsorted(below, total * percent / 100) for percent in PERCENTILES]
    return {
        "min": int(values[0]),
        **{
            f"p{percent}": int(values[min(int(place), len(values) - 1)])
            for percent, place in zip(PERCENTILES, places, strict=True)
        },
        "max": int(values[-1]),
        "mean": round(float(values @ [lengths[int(value)] for value in values]) / total, 1),
    }


class TokenCounter:
    """The packaged tokenizer, which neither pads nor cuts."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        tokenizer.no_padding()
        tokenizer.no_truncation()
        self._tokenizer = tokenizer
        self.words: list[int] = []
        """Ids of real tokens, the first that were counted."""

    def count(self, requests: Iterable[Request]) -> Iterator[tuple[Request, list[int]]]:
        """Yield each request with the tokens of its texts; many are tokenized in one call."""
        waiting: list[Request] = []
        characters = 0
        for request in requests:
            waiting.append(request)
            characters += sum(map(_characters, request.texts))
            if characters >= CHARACTERS_AT_ONCE:
                yield from self._count(waiting)
                waiting, characters = [], 0
        yield from self._count(waiting)

    def _count(self, requests: Sequence[Request]) -> Iterator[tuple[Request, list[int]]]:
        texts = [text for request in requests for text in request.texts]
        whole = [text for text in texts if _characters(text) <= CHARACTERS_AT_ONCE]
        lengths = iter(self._lengths(whole))
        counts = iter(
            [
                next(lengths)
                if _characters(text) <= CHARACTERS_AT_ONCE
                else self._length_in_pieces(text)
                for text in texts
            ]
        )
        for request in requests:
            yield request, [next(counts) for _ in request.texts]

    def _lengths(self, texts: Sequence[Text]) -> list[int]:
        lengths: list[int] = []
        begin, characters = 0, 0
        for end, text in enumerate(texts, 1):
            characters += _characters(text)
            if characters >= CHARACTERS_AT_ONCE or end == len(texts):
                encodings = self._tokenizer.encode_batch_fast(list(texts[begin:end]))
                lengths += map(len, encodings)
                if len(self.words) < WORDS:
                    self.words += [token for item in encodings for token in item.ids][:WORDS]
                begin, characters = end, 0
        return lengths

    def _length_in_pieces(self, text: Text) -> int:
        """Return the tokens of a text of any length; one at most is split at a piece's end."""
        pair = isinstance(text, tuple)
        parts = text if isinstance(text, tuple) else (text,)
        special = self._tokenizer.num_special_tokens_to_add(False)
        count = int(self._tokenizer.num_special_tokens_to_add(pair))
        for piece in (piece for part in parts for piece in _pieces(part)):
            (encoding,) = self._tokenizer.encode_batch_fast([piece])
            count += len(encoding) - special
        return count


def _characters(text: Text) -> int:
    return len(text) if isinstance(text, str) else sum(map(len, text))


def _pieces(text: str) -> Iterator[str]:
    """Yield a text in pieces that end where a word does, if there is one."""
    begin = 0
    while begin < len(text):
        end = begin + CHARACTERS_AT_ONCE
        if end < len(text):
            space = text.rfind(" ", begin + 1, end)
            end = end if space < 0 else space
        yield text[begin:end]
        begin = end
