"""Requests of a load test of a text generator: chats of given lengths in tokens."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from onboarding.text_generation.lengths import LogNormal, draw_lengths, log_normal
from onboarding.text_generation.spec import ContextSpec
from roundhouse.errors import RoundhouseError
from roundhouse.measure.destination import Destination, Sign
from roundhouse.measure.inputs import Body

CONTENT_TYPE = "application/json"
WORDS = tuple(
    """
    the of and to in is that for it as was with be by on not he his but at are this have from or
    had an they which one you were all her she there would their we him been has when who will no
    more if out so up said what its about than into them can only other time new some could these
    two may first then do any like my now over such our man me even most made after also did many
    off before must well back through years where much your way down should because long each just
    state those people too world good year under last make work still life without use old place
    """.split()  # noqa: SIM905
)
"""Common words, most of them one token in any tokenizer."""


@dataclass(frozen=True, kw_only=True)
class WordTokens:
    """Tokens of a prompt of words: `fixed`, those of the chat template, and `each` of a word."""

    fixed: float = 0.0
    each: float = 1.0

    def words(self, tokens: int) -> int:
        """Return the number of words of a prompt of so many tokens; at least one."""
        return max(round((tokens - self.fixed) / self.each), 1)


def word_tokens(counts: Sequence[tuple[int, int]]) -> WordTokens:
    """Return what two prompts of (words, tokens) say. Raises RoundhouseError where they differ."""
    (few, first), (many, second) = counts
    each = (second - first) / (many - few)
    if each <= 0:
        raise RoundhouseError(
            f"The server counts {first} tokens in {few} words and {second} in {many}: prompts of "
            "given lengths cannot be made."
        )
    return WordTokens(fixed=first - few * each, each=each)


class GenerationRequests:
    """Chats one after the other; each is signed as it leaves.

    Of lengths that follow from `seed`, of words that follow from `words_seed` too: an engine's
    prefix cache answers a prompt that it read before sooner.
    """

    def __init__(
        self,
        destination: Destination,
        lengths: Lengths,
        *,
        model: str | None,
        seed: int,
        words_seed: int = 0,
        sign: Sign | None = None,
        tokens: WordTokens | None = None,
    ) -> None:
        self._destination, self._lengths = destination, lengths.draw(random.Random(seed))
        self._model, self._sign = model, sign
        self._tokens = WordTokens() if tokens is None else tokens
        self._word_chance = random.Random(f"{seed} {words_seed}")

    def next(self) -> tuple[bytes, dict[str, str]]:
        """Return the next request's body and headers."""
        length, output = next(self._lengths)
        return self.of_words(self._tokens.words(length), output)

    def of_words(self, words: int, output: int) -> tuple[bytes, dict[str, str]]:
        """Return a chat of so many words, streamed, for an answer of so many tokens.

        The answer goes on over the end-of-text token, which vLLM's `ignore_eos` does.
        """
        content = " ".join(self._word_chance.choices(WORDS, k=words))
        body: dict[str, Any] = {} if self._model is None else {"model": self._model}
        body |= {
            "messages": [{"role": "user", "content": content}],
            "max_tokens": output,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        data = json.dumps(body).encode()
        headers = {"Content-Type": CONTENT_TYPE, **self._destination.headers}
        if self._sign is not None:
            headers |= self._sign(Body(data, CONTENT_TYPE))
        return data, headers


SHORT_WORDS, LONG_WORDS = 32, 544
TOKENS_A_WORD = 4
"""At most, chat template included, of the words that prompts are made of."""


@dataclass(frozen=True, kw_only=True)
class Lengths:
    """Distributions of prompts and answers; together at most `max_model_len` tokens, if known."""

    prompt: LogNormal
    output: LogNormal
    max_model_len: int | None
    origin: str

    def draw(self, chance: random.Random) -> Iterator[tuple[int, int]]:
        """Yield the tokens of prompts and of their answers."""
        most = 10_000_000 if self.max_model_len is None else self.max_model_len
        return draw_lengths(self.prompt, self.output, most, chance)

    @property
    def calibration_words(self) -> tuple[int, int]:
        """Words of two prompts by whose tokens words are counted: they fit the longest request."""
        words = LONG_WORDS
        if self.max_model_len is not None:
            words = max(2, min(words, (self.max_model_len - 2) // TOKENS_A_WORD))
        return min(SHORT_WORDS, words // 2), words

    def __str__(self) -> str:
        return f"{self.origin}: prompts of {self.prompt} tokens, answers of {self.output}"


def lengths_of(context: ContextSpec) -> Lengths:
    """Return the lengths that a model file declares."""
    return Lengths(
        prompt=log_normal(context.mean_prompt, context.prompt_p95),
        output=log_normal(context.mean_output, context.output_p95),
        max_model_len=context.max_model_len,
        origin="log-normal lengths of the model file",
    )


def parse_lengths(text: str, context: ContextSpec | None) -> Lengths:
    """Return the lengths of `--input`: PROMPT:OUTPUT tokens.

    Raises RoundhouseError for another text, and for lengths over the model's max_model_len.
    """
    first, _, second = text.partition(":")
    if not (first.isdecimal() and second.isdecimal() and int(first) and int(second)):
        raise RoundhouseError(f"--input {text}: give PROMPT:OUTPUT tokens, such as 512:128.")
    prompt, output = int(first), int(second)
    most = None if context is None else context.max_model_len
    if most is not None and prompt + output > most:
        raise RoundhouseError(
            f"--input {text}: {prompt} and {output} tokens are more than the model's "
            f"context.max_model_len of {most}; give shorter ones."
        )
    return Lengths(
        prompt=log_normal(prompt, prompt),
        output=log_normal(output, output),
        max_model_len=most,
        origin="fixed lengths",
    )
