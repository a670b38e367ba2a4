"""How long the prompts and answers of a load test are, in tokens."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from onboarding.text_generation.spec import ContextSpec
from roundhouse.errors import RoundhouseError
from roundhouse.text import choices

P95 = 1.6448536269514722
"""Of the standard normal distribution."""
WIDEST = P95
"""Of a log-normal's sigma: with it the p95 lies furthest above the mean, 3.87 times."""
SHORT_WORDS, LONG_WORDS = 32, 544
TOKENS_A_WORD = 4
"""At most, chat template included, of the words that prompts are made of."""
PROFILES = {"chat": (500, 500), "rag": (5000, 500), "agents": (1000, 200), "long": (10000, 500)}
"""Tokens of prompt and answer: the profiles that AWS's own benchmarks of endpoints use.

aws-samples/sagemaker-genai-hosting-examples, 07-benchmark/autobench/benchmarks.yaml.example.
"""


@dataclass(frozen=True, kw_only=True)
class LogNormal:
    """A log-normal distribution of a number of tokens; `sigma` 0: always the same number."""

    mu: float
    sigma: float

    @property
    def mean(self) -> float:
        """The mean, in tokens."""
        return math.exp(self.mu + self.sigma**2 / 2)

    @property
    def p95(self) -> float:
        """The 95th percentile, in tokens."""
        return math.exp(self.mu + P95 * self.sigma)

    @property
    def deviation(self) -> float:
        """The standard deviation, in tokens."""
        return self.mean * math.sqrt(math.expm1(self.sigma**2))

    def sample(self, chance: random.Random, most: int) -> int:
        """Return a number of tokens, from 1 to `most`."""
        value = math.exp(chance.gauss(self.mu, self.sigma)) if self.sigma else math.exp(self.mu)
        return min(max(round(value), 1), most)

    def __str__(self) -> str:
        if not self.sigma:
            return f"{self.mean:.0f}"
        return f"mean {self.mean:.0f}, p95 {self.p95:.0f}"


def log_normal(mean: float, p95: float) -> LogNormal:
    """Return the log-normal distribution with a mean and a 95th percentile.

    A p95 that is not above the mean gives one number, the p95. One more than 3.87 means above it,
    which no log-normal has, gives the widest with that p95; its mean is larger than the declared.
    """
    if p95 <= mean:
        return LogNormal(mu=math.log(p95), sigma=0.0)
    sigma = P95 - math.sqrt(max(P95**2 - 2 * math.log(p95 / mean), 0.0))
    return LogNormal(mu=math.log(p95) - P95 * sigma, sigma=min(sigma, WIDEST))


@dataclass(frozen=True, kw_only=True)
class Lengths:
    """Distributions of prompts and answers; together at most `max_model_len` tokens, if known."""

    prompt: LogNormal
    output: LogNormal
    max_model_len: int | None
    origin: str

    def sample(self, chance: random.Random) -> tuple[int, int]:
        """Return the tokens of a prompt and of its answer."""
        most = 10_000_000 if self.max_model_len is None else self.max_model_len
        output = self.output.sample(chance, max(most - 1, 1))
        return self.prompt.sample(chance, max(most - output, 1)), output

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
    """Return the lengths of `--input`: a profile's name, or PROMPT:OUTPUT tokens.

    Raises RoundhouseError for another text, and for lengths over the model's max_model_len.
    """
    prompt, output = PROFILES.get(text, (0, 0))
    if not prompt:
        first, _, second = text.partition(":")
        if not (first.isdecimal() and second.isdecimal() and int(first) and int(second)):
            raise RoundhouseError(
                f"--input {text}: give PROMPT:OUTPUT tokens, such as 512:128, or a profile; "
                f"{choices(text, PROFILES)}"
            )
        prompt, output = int(first), int(second)
    most = None if context is None else context.max_model_len
    if most is not None and prompt + output > most:
        raise RoundhouseError(
            f"--input {text}: {prompt} and {output} tokens are more than the model's "
            f"context.max_model_len of {most}; give shorter ones."
        )
    origin = f"profile {text}" if text in PROFILES else "fixed lengths"
    return Lengths(
        prompt=log_normal(prompt, prompt),
        output=log_normal(output, output),
        max_model_len=most,
        origin=origin,
    )
