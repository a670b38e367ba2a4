"""A budget holds only if the bad end of each interval does."""

from __future__ import annotations

from statistics import median

import pytest

from engine_build.text_generation.job import missed_budgets, reason, slower
from onboarding.text_generation.checkpoint_lock import (
    GateRecord,
    Interval,
    KvGate,
    SpeedRecord,
    SpeedRound,
    TaskScore,
)
from onboarding.text_generation.spec import GenerationBudgetSpec, TaskScoreSpec

pytestmark = pytest.mark.unit


def interval(value, spread=0.0):
    return Interval(value=value, low=value - spread, high=value + spread)


GOOD = GateRecord(
    dataset="a.txt",
    dataset_sha256="0" * 64,
    tokens=1000,
    samples=20,
    kl_per_token=interval(0.04, 0.01),
    top1=interval(0.91, 0.02),
    perplexity_ratio=interval(1.0, 0.01),
)


def with_fields(**fields):
    return GOOD.model_copy(update=fields)


def score(spread):
    value = interval(0.01, spread)
    return TaskScore(file="faq.yaml", reference=0.8, value=0.79, drop=value)


FAR = KvGate(kl_per_token=interval(0.3), top1=interval(0.95), perplexity_ratio=interval(1.01))


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({}, None),
        ({"kl_per_token": interval(0.095, 0.01)}, "KL per token is 0.095 (0.085 to 0.105) nats"),
        ({"top1": interval(0.86, 0.02)}, "top-1 agreement is 0.860 (0.840 to 0.880)"),
        ({"perplexity_ratio": interval(1.04, 0.02)}, "perplexity is 1.040 (1.020 to 1.060) times"),
        ({"kv": FAR}, "KL per token with an FP8 KV cache on long prompts is 0.300"),
        ({"task": score(0.02)}, "the score of faq.yaml falls by 0.010 (-0.010 to 0.030)"),
        ({"task": score(0.0)}, None),
    ],
)
def test_refuses_a_mean_within_and_an_end_outside_its_budget(fields, says):
    budget = GenerationBudgetSpec(task=TaskScoreSpec(file="faq.yaml", drop=0.02))
    missed = missed_budgets(budget, with_fields(**fields))
    assert [text.startswith(says or "-") for text in missed] == [True] * (says is not None)
    expected = None if says is None else f"int8 misses its budget: {missed[0]}"
    assert reason("int8", missed) == expected


def speed(*pairs):
    """Rounds of (checkpoint, source)."""
    rounds = [
        SpeedRound(output_tokens_per_second=mine, reference_tokens_per_second=reference)
        for mine, reference in pairs
    ]
    return SpeedRecord(
        output_tokens_per_second=median(mine for mine, _ in pairs),
        reference_tokens_per_second=None if pairs[0][1] is None else median(p[1] for p in pairs),
        rounds=tuple(rounds),
        concurrency=8,
        instance_type_or_machine="NVIDIA H200",
        engine="vllm 0.30.0",
    )


def test_a_checkpoint_that_is_measured_slower_is_not_worth_its_loss():
    assert slower("awq", speed((75, 100), (76, 102), (75, 101))) == (
        "awq gives 75.0 output tokens a second on NVIDIA H200, and its source 101: 0.745 (0.743 to "
        "0.750) times, and rounds of one of them lie 2.0% apart"
    )
    fine = speed((140, 100), (139, 100), (141, 100)), speed((50, None), (51, None)), None
    assert [slower("fp8", record) for record in fine] == [None] * 3


@pytest.mark.parametrize(
    ("pairs", "is_refused"),
    [
        (((97, 100), (97, 101), (98, 102)), True),  # 4 % slower, rounds 2 % apart
        (((97, 100), (99, 103), (98, 105)), False),  # 4 % slower, rounds of the source 5 % apart
        (((60, 100), (97, 100), (110, 100)), False),  # its own rounds lie far apart
        (((50, 100), (52, 130), (51, 110)), True),  # half as fast on a noisy machine
        (((100, 100), (100, 100), (100, 100)), False),
    ],
)
def test_slower_is_only_what_the_noise_of_the_rounds_does_not_explain(pairs, is_refused):
    assert (slower("int8", speed(*pairs)) is not None) is is_refused
