"""A checkpoint compared with its source on held-out texts, and its FP8 KV cache on long prompts.

Source and checkpoint are in memory one after the other, so the source's answers lie in files.
Log-probabilities are compared token by token over the whole vocabulary. Their intervals are
percentile bootstraps over samples, both models on the same resampled ones; resampling is seeded, so
that the same numbers give the same interval.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from engine_build.datasets.dataset import Array
from engine_build.errors import InputRefused
from engine_build.evaluation.scores import bootstrap_interval
from engine_build.log import Log
from engine_build.machine import return_memory
from engine_build.text_generation.language_model import ROWS, KvScales, LanguageModel, next_tokens
from engine_build.text_generation.source import FetchedSource
from engine_build.workload import Tools
from onboarding.dataset import evaluation_path
from onboarding.text_generation.checkpoint_key import LONG_PROMPTS
from onboarding.text_generation.checkpoint_lock import GateRecord, Interval, KvGate, TaskScore
from onboarding.text_generation.spec import TextGenerationSpec
from onboarding.text_generation.texts import (
    ENOUGH_SAMPLES,
    MORE_ITEMS,
    NORMAL_95,
    TaskFile,
    TaskFileError,
    TextSample,
    TextsError,
    read_task_file,
    read_texts,
    shared_line,
)


@dataclass(frozen=True, kw_only=True)
class SampleScore:
    """Sums over the tokens of one sample.

    `kl`: Kullback-Leibler divergence of the candidate from the reference, in nats. `agree`: tokens
    where both have the same first choice. `reference_nll`, `nll`: negative log-likelihood of the
    text.
    """

    tokens: int
    kl: float
    agree: int
    reference_nll: float
    nll: float

    def __add__(self, other: SampleScore) -> SampleScore:
        """Return the sums of both parts of a sample."""
        return SampleScore(
            tokens=self.tokens + other.tokens,
            kl=self.kl + other.kl,
            agree=self.agree + other.agree,
            reference_nll=self.reference_nll + other.reference_nll,
            nll=self.nll + other.nll,
        )


WORST = -100.0
"""A log-probability, in nats, for an answer that is no number."""


def score_sample(reference: Array, candidate: Array, targets: Array) -> SampleScore:
    """Score log-probabilities [tokens, vocabulary] of both models; targets [tokens] came next.

    The reference may be of half precision; its probabilities are normalized again. Raises
    InputRefused where it has numbers that are none; the candidate's count as WORST.
    """
    # Not a number, or no probability at all: as wrong as can be, and counted as such.
    candidate = np.nan_to_num(candidate, nan=WORST, posinf=WORST, neginf=WORST)
    expected = np.asarray(reference, np.float32)
    if not np.isfinite(expected).all():
        raise InputRefused(
            "the source answers a held-out text with numbers that are none (NaN): its weights, or "
            "their conversion, are broken; nothing can be compared with them"
        )
    most = expected.max(1, keepdims=True)
    expected = expected - (most + np.log(np.exp(expected - most).sum(1, keepdims=True)))
    rows = np.arange(len(targets))
    divergence = np.exp(expected) * (expected - candidate)
    return SampleScore(
        tokens=len(targets),
        # Rounding may leave a sum of nearly equal numbers a little below zero.
        kl=max(0.0, float(divergence.sum(dtype=np.float64))),
        agree=int((expected.argmax(1) == candidate.argmax(1)).sum()),
        reference_nll=-float(expected[rows, targets].sum(dtype=np.float64)),
        nll=-float(candidate[rows, targets].sum(dtype=np.float64)),
    )


def divergence(scores: Sequence[SampleScore]) -> KvGate:
    """Return the comparison of all samples; KL and agreement are means of all tokens."""
    columns = np.array(
        [(s.tokens, s.kl, s.agree, s.reference_nll, s.nll) for s in scores], np.float64
    )

    def perplexity_ratio(sums: Array) -> Array:
        ratio: Array = np.exp((sums[..., 4] - sums[..., 3]) / sums[..., 0])
        return ratio

    return KvGate(
        kl_per_token=_interval(columns, lambda sums: sums[..., 1] / sums[..., 0]),
        top1=_interval(columns, lambda sums: sums[..., 2] / sums[..., 0]),
        perplexity_ratio=_interval(columns, perplexity_ratio),
    )


def score_drop(reference: Sequence[bool], candidate: Sequence[bool]) -> Interval:
    """Return how far the share of right answers falls, item by item, with its interval.

    A bootstrap knows no doubt where no answer changed, however few there are. So the interval is
    that of Bonett and Price (2012) for the difference of paired proportions: Wald's, with one more
    item lost and one more won.
    """
    pairs = list(zip(reference, candidate, strict=True))
    lost, won = (sum(pair == kind for pair in pairs) for kind in ((True, False), (False, True)))
    count = len(pairs) + MORE_ITEMS
    shares = (lost + 1) / count, (won + 1) / count
    middle = shares[0] - shares[1]
    half = NORMAL_95 * math.sqrt((sum(shares) - middle**2) / count)
    return Interval(
        value=(lost - won) / len(pairs), low=max(-1.0, middle - half), high=min(1.0, middle + half)
    )


def _interval(columns: Array, statistic: Callable[[Array], Array]) -> Interval:
    """Return a statistic of column sums [..., columns], and its interval over resampled rows."""
    low, high = bootstrap_interval(
        len(columns), lambda drawn: statistic(columns[drawn].sum(axis=1))
    )
    return Interval(value=float(statistic(columns.sum(0))), low=low, high=high)


SHIPPED = "roundhouse:texts/evaluation.txt"
"""What records call the shipped texts."""
LEAST_TOKENS = 8
"""Shorter samples say nothing."""


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What a model's checkpoints are judged on."""

    name: str
    path: Path
    samples: tuple[TextSample, ...]
    sample_tokens: int
    long_tokens: int
    task: TaskFile | None
    task_name: str | None

    def token_lists(self, model: LanguageModel) -> list[list[int]]:
        """Return the samples' tokens. Raises InputRefused where too few are long enough."""
        lists = [model.tokens(sample, self.sample_tokens) for sample in self.samples]
        lists = [tokens for tokens in lists if len(tokens) >= LEAST_TOKENS]
        if len(lists) < ENOUGH_SAMPLES:
            raise InputRefused(
                f"{self.name} has {len(lists)} samples of at least {LEAST_TOKENS} tokens; allowed: "
                f"{ENOUGH_SAMPLES} or more; add texts."
            )
        return lists


def evaluation_of(spec: TextGenerationSpec, root: Path) -> Evaluation:
    """Return what a model file is judged on, held out from calibration. Raises InputRefused."""
    quantization = spec.quantization
    chosen, calibration = quantization.evaluation, quantization.calibration
    path = evaluation_path() if chosen.dataset is None else root / chosen.dataset
    name = SHIPPED if chosen.dataset is None else chosen.dataset
    task = quantization.budget.task
    try:
        if calibration is not None:
            shared = shared_line(root / calibration.dataset, calibration.samples, path)
            if shared is not None:
                raise InputRefused(
                    f"line {shared[0]} of {name} is line {shared[1]} of {calibration.dataset}, and "
                    "a checkpoint looks better on texts that set its ranges; take it out of one."
                )
        samples = tuple(read_texts(path, chosen.samples))
        read = None if task is None else read_task_file(root / task.file)
    except TextsError as error:
        raise InputRefused(f"evaluation or calibration texts: {error}.") from error
    except TaskFileError as error:
        raise InputRefused(f"{task.file if task else ''} {error}.") from error
    return Evaluation(
        name=name,
        path=path,
        samples=samples,
        sample_tokens=chosen.sample_tokens,
        long_tokens=spec.context.prompt_p95,
        task=read,
        task_name=None if task is None else task.file,
    )


def judge(
    candidate: LanguageModel,
    references: References,
    evaluation: Evaluation,
    dataset_sha256: str,
    kv_scales: KvScales | None,
    log: Log,
) -> GateRecord:
    """Compare a checkpoint with the source's answers; `kv_scales`: and its FP8 KV cache.

    Raises SourceFault.
    """
    scores = candidate_scores(candidate, references, log)
    task = None
    if evaluation.task is not None and evaluation.task_name is not None:
        expected = references.right_answers
        given = right_answers(candidate, evaluation.task)
        task = TaskScore(
            file=evaluation.task_name,
            reference=float(np.mean(expected)),
            value=float(np.mean(given)),
            drop=score_drop(expected, given),
        )
    kv = None
    if kv_scales is not None:
        prompts = long_prompts(references.samples, LONG_PROMPTS, evaluation.long_tokens)
        kv = divergence(kv_scores(candidate, prompts, kv_scales, log))
    return GateRecord(
        dataset=evaluation.name,
        dataset_sha256=dataset_sha256,
        tokens=sum(score.tokens for score in scores),
        samples=len(scores),
        task=task,
        kv=kv,
        **vars(divergence(scores)),
    )


def candidate_scores(
    candidate: LanguageModel, references: References, log: Log
) -> list[SampleScore]:
    """Score the samples."""
    scores = []
    for number, tokens in enumerate(references.samples):
        log.progress(f"checkpoint: {number} of {len(references.samples)} samples")
        parts = zip(
            references.log_probabilities(number), candidate.log_probabilities(tokens), strict=True
        )
        scores.append(_score(parts, next_tokens(tokens)))
    return scores


def kv_scores(
    model: LanguageModel, prompts: Sequence[Sequence[int]], scales: KvScales, log: Log
) -> list[SampleScore]:
    """Score prompts with an FP8 KV cache against the same weights with one of 16 bits."""
    scores = []
    for number, tokens in enumerate(prompts):
        log.progress(f"FP8 KV cache: {number} of {len(prompts)} long prompts")
        pairs = zip(
            model.log_probabilities(tokens), model.log_probabilities(tokens, scales), strict=True
        )
        scores.append(_score(pairs, next_tokens(tokens)))
    return scores


def long_prompts(samples: Sequence[Sequence[int]], count: int, tokens: int) -> list[list[int]]:
    """Return prompts of so many tokens: all samples in an order of their own, cut at the end.

    Prompts are shorter where all samples together are.
    """
    prompts = []
    for seed in range(count):
        order = random.Random(seed).sample(range(len(samples)), len(samples))
        prompts.append([token for place in order for token in samples[place]][:tokens])
    return prompts


def _score(pairs: Iterable[tuple[Array, Array]], targets: Array) -> SampleScore:
    total = SampleScore(tokens=0, kl=0.0, agree=0, reference_nll=0.0, nll=0.0)
    for reference, given in pairs:
        end = total.tokens + len(given)
        total += score_sample(reference, given, targets[total.tokens : end])
    return total


@dataclass(frozen=True, kw_only=True)
class References:
    """The source's answers: a file of log-probabilities a sample, in half precision."""

    samples: Sequence[Sequence[int]]
    folder: Path
    right_answers: Sequence[bool] = ()
    """Which items of the task the source answers right."""

    def log_probabilities(self, number: int) -> Iterator[Array]:
        """Yield the source's log-probabilities of a sample, [up to 256, vocabulary] at once."""
        rows: Array = np.load(self.folder / f"{number}.npy", mmap_mode="r")
        for start in range(0, len(rows), ROWS):
            yield rows[start : start + ROWS]


def source_answers(source: FetchedSource, evaluation: Evaluation, tools: Tools) -> References:
    """Return what the source itself answers; its weights leave memory. Raises SourceFault."""
    model = LanguageModel(source.folder, trusts_code=source.trusts_code)
    samples, folder = evaluation.token_lists(model), tools.work.scratch("references")
    for number, tokens in enumerate(samples):
        tools.log.progress(f"source: {number} of {len(samples)} samples")
        rows: list[Array] = [part.astype(np.float16) for part in model.log_probabilities(tokens)]
        np.save(folder / f"{number}.npy", np.concatenate(rows))
    right = () if evaluation.task is None else right_answers(model, evaluation.task)
    del model
    return_memory()
    return References(samples=samples, folder=folder, right_answers=right)


def right_answers(model: LanguageModel, task: TaskFile) -> list[bool]:
    """Return which items of a task a model answers right."""
    return [
        task.is_right(item, model.answer(task.messages(item), task.max_tokens))
        for item in task.items
    ]
