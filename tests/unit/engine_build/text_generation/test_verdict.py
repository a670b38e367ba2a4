"""What the gate measures of a checkpoint, its speed and its verdict."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from statistics import median
from types import SimpleNamespace

import numpy as np
import pytest

from engine_build.errors import InputRefused
from engine_build.log import Log
from engine_build.runner import TIMED_OUT, Ended
from engine_build.text_generation.gate import (
    SampleScore,
    divergence,
    score_drop,
    score_sample,
)
from engine_build.text_generation.job import missed_budgets, reason, slower
from engine_build.text_generation.speed import MODULE, SECONDS, measure_speed
from engine_build.workload import Settings
from onboarding.text_generation.checkpoint_lock import (
    GateRecord,
    Interval,
    KvGate,
    SpeedRecord,
    SpeedRound,
    TaskScore,
)
from onboarding.text_generation.spec import GenerationBudgetSpec, TaskScoreSpec
from tests.unit.onboarding.text_generation.test_planner import _spec


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


def log_softmax(rows):
    return rows - np.log(np.exp(rows).sum(1, keepdims=True))


@pytest.fixture
def random():
    return np.random.default_rng(5)


def test_a_sample_is_scored_as_the_definitions_say(random):
    reference, candidate = (log_softmax(random.normal(0, 2, (7, 50))) for _ in range(2))
    targets = random.integers(0, 50, 7)
    score = score_sample(reference, candidate, targets)
    expected = sum(
        np.exp(p) * (p - q) for p, q in zip(reference.ravel(), candidate.ravel(), strict=True)
    )
    assert score.kl == pytest.approx(expected, rel=1e-5)
    assert score.agree == sum(
        int(a.argmax() == b.argmax()) for a, b in zip(reference, candidate, strict=True)
    )
    assert score.reference_nll == pytest.approx(
        -sum(reference[i, t] for i, t in enumerate(targets)), rel=1e-5
    )
    assert score.nll == pytest.approx(-sum(candidate[i, t] for i, t in enumerate(targets)))
    first, second = (
        score_sample(reference[part], candidate[part], targets[part])
        for part in (slice(3), slice(3, None))
    )
    assert first + second == SampleScore(
        tokens=7,
        kl=pytest.approx(score.kl),
        agree=score.agree,
        reference_nll=pytest.approx(score.reference_nll),
        nll=pytest.approx(score.nll),
    )
    itself = score_sample(candidate.astype(np.float16), candidate, targets)
    assert itself.agree >= 6 and itself.kl / 7 < 1e-5


def sample(tokens, kl, nll=3.0, reference=2.9):
    return SampleScore(
        tokens=tokens,
        kl=kl * tokens,
        agree=round(0.9 * tokens),
        reference_nll=reference * tokens,
        nll=nll * tokens,
    )


def test_means_are_of_tokens_and_intervals_of_paired_samples(random):
    found = divergence([sample(10, 1.0), sample(90, 0.0)])
    assert found.kl_per_token.value == pytest.approx(0.1)
    assert found.perplexity_ratio.value == pytest.approx(np.exp(0.1))
    assert found.top1.value == pytest.approx(0.9)
    # Texts of any difficulty do not widen the ratio.
    levels = random.uniform(1, 6, 60)
    hard = [sample(100, 0.05, nll=level + 0.02, reference=level) for level in levels]
    ratio = divergence(hard).perplexity_ratio
    assert ratio.high - ratio.low < 1e-9 and ratio.value == pytest.approx(np.exp(0.02))
    scores = [sample(50, kl) for kl in random.exponential(0.1, 30)]
    assert divergence(scores) == divergence(scores)
    assert divergence(scores).kl_per_token.low < divergence(scores).kl_per_token.high


@pytest.mark.parametrize("count", [20, 150])
def test_interval_of_a_drop_holds_the_true_one_as_often_as_it_says(random, count):
    held = 0
    for _ in range(400):
        draws = random.random(count)
        reference, candidate = draws < 0.8, (draws < 0.75) | (draws > 0.98)
        drop = score_drop(reference.tolist(), candidate.tolist())
        held += drop.low <= 0.03 <= drop.high
    assert held >= 372


def test_answers_that_are_no_numbers_are_as_wrong_as_can_be(random):
    reference = log_softmax(random.normal(0, 2, (4, 9)))
    candidate, targets = reference.copy(), np.zeros(4, int)
    candidate[2] = np.nan
    found = divergence([score_sample(reference, candidate, targets)] * 3)
    assert found.kl_per_token.low > 10 and found.perplexity_ratio.low > 1e9
    with pytest.raises(InputRefused, match="numbers that are none"):
        score_sample(candidate, reference, targets)


SOURCE, OURS = Path("/w/source"), Path("/w/checkpoint")
ON_CPU = Settings(vllm_python=sys.executable, speed_on_cpu=True)


class Engines:
    """Plays vLLM's processes: the rates of each folder, one list a process, in their order.

    Each takes so many seconds of its clock, or the time that its command is given.
    """

    def __init__(self, seconds=60, **rates):
        self.rates = {name: list(rows) for name, rows in rates.items()}
        self.commands, self.seconds, self.now = [], seconds, 1000.0

    def run(self, command):
        self.commands.append(command)
        self.now += min(self.seconds, command.timeout_seconds)
        if self.seconds > command.timeout_seconds:
            return Ended(code=TIMED_OUT, output="", errors="still running; stopped")
        request = json.loads(command.argv[-1])
        rows = self.rates[Path(request["engine"]["model"]).name]
        row = rows.pop(0)
        if isinstance(row, str):
            return Ended(code=1, output="", errors=row)
        report = {"output_tokens_per_second": row, "vllm": "0.30.0"}
        return Ended(code=0, output=f"INFO\n{json.dumps(report)}\n", errors="")


def measure(engines, settings=ON_CPU, **spec):
    stream = io.StringIO()
    log, folders = Log(stream), (SOURCE, OURS)
    tools = SimpleNamespace(settings=settings, runner=engines, log=log)
    record = measure_speed(
        _spec(**spec), folders, 2, tools, gpu=lambda count: None, clock=lambda: engines.now
    )
    return record, stream.getvalue()


def test_rounds_alternate_and_medians_are_kept():
    engines = Engines(
        source=[[100, 99, 101], [90, 89, 500], [110, 111, 109]],
        checkpoint=[[150, 149, 151], [140, 141, 139], [160, 161, 159]],
    )
    record, log = measure(engines)
    assert (record.output_tokens_per_second, record.reference_tokens_per_second) == (150, 100)
    assert [item.output_tokens_per_second for item in record.rounds] == [150, 140, 160]
    assert record.ratio.value == 1.5 and record.engine == "vllm 0.30.0"
    assert "round 2: 140.0 output tokens/s, its source 90.0 output tokens/s" in log
    folders = [json.loads(item.argv[-1])["engine"]["model"] for item in engines.commands]
    names = [Path(folder).name for folder in folders]
    assert names == ["source", "checkpoint", "checkpoint", "source", "source", "checkpoint"]


def test_engine_has_the_arguments_of_the_plan():
    engines = Engines(source=[[1.0]] * 3, checkpoint=[[1.0]] * 3)
    spec = {"quantization": {"kv_cache": "fp8"}}
    measure(engines, **spec)
    source, ours = (json.loads(command.argv[-1]) for command in engines.commands[:2])
    assert engines.commands[0].argv[:3] == (sys.executable, "-m", MODULE)
    assert engines.commands[0].variables["VLLM_CPU_KVCACHE_SPACE"] == "1"
    assert ours["engine"]["kv_cache_dtype"] == "fp8" and "kv_cache_dtype" not in source["engine"]
    assert ours["engine"]["tensor_parallel_size"] == 2
    assert ours["engine"]["max_model_len"] == _spec(**spec).context.max_model_len
    assert ours["concurrency"] == _spec(**spec).slo.concurrency


@pytest.mark.parametrize(
    ("seconds", "finished"),
    [(299, 3), (400, 2), (450, None), (600, None), (5000, None), (SECONDS / 5, 2)],
)
def test_rounds_that_end_within_one_deadline_count(seconds, finished):
    engines = Engines(seconds, source=[[100.0]] * 3, checkpoint=[[150.0]] * 3)
    record, log = measure(engines)
    assert (None if record is None else len(record.rounds)) == finished
    assert engines.now <= 1000 + SECONDS and len(engines.commands) <= 6
    assert ("not measured; the plan's estimate stands" in log) == (record is None)
    if finished != 3:
        assert "1800 seconds are over after" in log


@pytest.mark.parametrize(
    "rates",
    [
        {"source": [[1.0]], "checkpoint": ["ValueError: no kernel"]},
        {"source": [[1.0], "killed"], "checkpoint": [[1.0], [1.0]]},
        {"source": [[1.0]], "checkpoint": [[]]},
    ],
)
def test_engine_that_ends_with_a_fault_measures_nothing(rates):
    record, log = measure(Engines(**rates))
    assert record is None and "not measured: vLLM does not run it here" in log


@pytest.mark.parametrize("settings", [Settings(), Settings(vllm_python=sys.executable)])
def test_machine_without_a_gpu_or_vllm_measures_nothing(settings):
    engines = Engines()
    record, log = measure(engines, settings)
    assert record is None and not engines.commands
    assert "not measured: this machine has no GPU with vLLM" in log
