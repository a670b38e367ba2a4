"""Speed against noise: paired rounds in, a record out.

The decision and its sentence.
"""

from __future__ import annotations

import numpy as np
import pytest

from engine_build.datasets.dataset import Shape
from engine_build.errors import BudgetMissed
from engine_build.evaluation.decision import (
    Findings,
    decide,
    format_speedup,
    is_faster,
    refuse_missed_budget,
    required_speedup,
    speedup,
)
from engine_build.evaluation.latency import Latencies
from onboarding.manifest import AccuracyRecord, SpeedupRecord

SHAPE = Shape(batch=8, sequence=64)


def measured(candidate, control, *, noise=0.02, rounds=40, seed=0):
    """Rounds of a baseline of 10 ms, a candidate and a control so many times as fast, under load
    that comes and goes.
    """
    random = np.random.default_rng(seed)
    load = np.where(np.sin(np.arange(rounds) / 5) > 0, 2.0, 1.0)[:, None]
    means = 10.0 / np.array([1.0, candidate, control])
    found = means * load * np.exp(noise * random.standard_normal((rounds, 3)))
    return Latencies(shape=SHAPE, milliseconds=found[:, :, None])


def speedup_record(*arguments, **keywords):
    return speedup(
        measured(*arguments, **keywords), candidate=(1, "int8"), baseline=(0, "fp32"), control=2
    )


def test_gain_above_the_noise_is_faster():
    found = speedup_record(2.0, 1.0)
    assert is_faster(found)
    assert found.ratio == pytest.approx(2.0, rel=0.03) and found.low <= found.ratio <= found.high
    assert (found.candidate, found.baseline, found.batch, found.sequence) == ("int8", "fp32", 8, 64)


def test_control_that_differs_more_than_the_gain_is_not_faster():
    assert not is_faster(speedup_record(1.3, 1.35))
    assert not is_faster(speedup_record(1.3, 1 / 1.35)), "noise in either direction is noise"


def test_noise_is_what_rounds_differ_by_and_more_rounds_do_not_shrink_it():
    few, many = (
        speedup_record(1.2, 1.0, noise=0.2, rounds=50),
        speedup_record(1.2, 1.0, noise=0.2, rounds=5000),
    )
    assert many.high - many.low < 0.2 * (few.high - few.low)
    assert required_speedup(many) > 1.3 and not is_faster(many)


def test_gain_below_five_percent_is_not_worth_it():
    found = speedup_record(1.03, 1.0, noise=0.001)
    assert found.low > max(1.0, found.control_high)
    assert required_speedup(found) == 1.05 and not is_faster(found)


def test_slower_is_not_faster():
    assert not is_faster(speedup_record(0.8, 1.0))


def test_decision_does_not_flip_between_runs_of_a_noisy_machine():
    clear = {is_faster(speedup_record(2.0, 1.0, noise=0.15, seed=seed)) for seed in range(20)}
    equal = {is_faster(speedup_record(1.0, 1.0, noise=0.15, seed=seed)) for seed in range(20)}
    assert (clear, equal) == ({True}, {False})


def test_record_is_told_with_its_noise():
    assert format_speedup(speedup_record(2.0, 1.0, noise=0.0)) == (
        "2.00 times as fast as fp32 at 8 x 64 (95 % interval 2.00 to 2.00; rounds of two copies "
        "of fp32: 1.00 to 1.00)"
    )


FAST = {"ratio": 2.5, "low": 2.4, "high": 2.6, "control_low": 0.99, "control_high": 1.02}
SLOW = {"ratio": 1.08, "low": 0.98, "high": 1.2, "control_low": 0.95, "control_high": 1.06}


def record(precision, verdict="pass", *, mean=0.995, worst=0.97, samples=200):
    return AccuracyRecord(
        subject=f"{precision} engine",
        metric="cosine",
        mean=mean,
        mean_interval=(mean - 0.001, mean + 0.001),
        worst=worst,
        samples=samples,
        budget_mean=0.99,
        budget_worst=0.95,
        verdict=verdict,
    )


def findings(broken=None, **verdicts):
    accuracy = {
        precision: found if isinstance(found, AccuracyRecord) else record(precision, found)
        for precision, found in verdicts.items()
    }
    return Findings(accuracy=accuracy, broken={} if broken is None else broken)


def speed(baseline="fp32", sequence=64, **numbers):
    return SpeedupRecord(
        candidate="int8", baseline=baseline, batch=8, sequence=sequence, **(numbers or FAST)
    )


def test_auto_takes_int8_that_is_faster_and_accurate():
    found = decide("auto", findings(fp32="pass", int8="pass"), [speed()])
    assert found.precision == "int8"
    assert found.sentence == (
        "int8: int8 is 2.50 times as fast as fp32 at 8 x 64 (95 % interval 2.40 to 2.60; rounds "
        "of two copies of fp32: "
        "0.99 to 1.02), and has mean cosine 0.99500 (95 % interval 0.99400 to 0.99600) and worst "
        "0.97000 on 200 samples, "
        "within the budget of mean 0.99 and worst 0.95."
    )


def test_auto_keeps_fp32_when_int8_is_no_faster_than_noise():
    found = decide("auto", findings(fp32="pass", int8="pass"), [speed(**SLOW)])
    assert found.precision == "fp32"
    assert found.sentence.startswith(
        "fp32: int8 is not faster by more than noise and 5 %: 1.08 times as fast as fp32 at 8 x 64"
    )


def test_auto_takes_int8_only_when_it_is_faster_at_every_profiles_opt_shape():
    found = decide(
        "auto", findings(fp32="pass", int8="pass"), [speed(), speed(sequence=128, **SLOW)]
    )
    assert (
        found.precision == "fp32"
        and "at 8 x 128" in found.sentence
        and "at 8 x 64" not in found.sentence
    )


@pytest.mark.parametrize(
    ("verdict", "reason"),
    [("fail", "outside the budget"), ("not enough data", "not enough data to judge it")],
)
def test_auto_keeps_fp32_when_int8_does_not_pass(verdict, reason):
    found = decide("auto", findings(fp32="pass", int8=verdict), [speed()])
    assert found.precision == "fp32" and reason in found.sentence


def test_auto_keeps_fp16_on_a_gpu_and_measures_against_it():
    found = decide("auto", findings(fp16="pass", int8="pass"), [speed("fp16", **SLOW)])
    assert found.precision == "fp16" and "as fast as fp16" in found.sentence


@pytest.mark.parametrize("verdict", ["fail", "not enough data"])
def test_auto_falls_back_to_fp32_where_fp16_does_not_pass(verdict):
    found = decide("auto", findings(fp16=verdict, int8="fail", fp32="pass"), [])
    assert found.precision == "fp32" and "; fp16 has mean cosine" in found.sentence


def test_auto_falls_back_to_fp32_where_fp16_overflows():
    broken = {"fp16": "fp16 engine gives NaN or Inf for 3 of 200 samples."}
    found = decide("auto", findings(broken, int8="fail", fp32="pass"), [])
    assert found.precision == "fp32" and found.sentence.endswith(
        "fp16 engine gives NaN or Inf for 3 of 200 samples."
    )


def test_auto_says_that_int8_is_broken():
    found = decide("auto", findings({"int8": "int8 engine gives NaN."}, fp32="pass"), [])
    assert (found.precision, found.sentence) == ("fp32", "fp32: int8 engine gives NaN.")


def test_auto_without_calibration_says_so():
    found = decide("auto", findings(fp32="pass"), [])
    assert found.precision == "fp32" and "gives no calibration samples" in found.sentence


def test_auto_takes_int8_when_no_float_engine_passes():
    found = decide("auto", findings(fp32="fail", int8="pass"), [])
    assert found.precision == "int8" and found.sentence.endswith(
        "no float engine is within the budget."
    )


def test_requested_precision_is_told_with_its_numbers():
    found = decide("int8", findings(int8="pass"), [])
    assert found.precision == "int8" and found.sentence.startswith(
        "int8, as asked: mean cosine 0.99500"
    )


def test_fp32_is_published_with_few_samples():
    refuse_missed_budget("fp32", findings(fp32=record("fp32", "not enough data", samples=20)))


def test_refuses_int8_outside_its_budget_with_the_closest_result():
    with pytest.raises(
        BudgetMissed,
        match=(
            r"precision int8 misses .* closest, int8, has mean cosine 0\.98.*wanted mean 0.99 and "
            r"worst 0.95; ask|lower"
        ),
    ):
        refuse_missed_budget("int8", findings(int8=record("int8", "fail", mean=0.98)))


def test_refuses_auto_when_nothing_passes_with_the_closest_of_all():
    found = findings(
        fp16=record("fp16", "fail", mean=0.9899),
        int8=record("int8", "fail", mean=0.97),
        fp32=record("fp32", "fail", worst=0.1),
    )
    with pytest.raises(
        BudgetMissed, match=r"precision auto misses .* closest, fp16, has mean cosine 0\.98990"
    ):
        refuse_missed_budget("auto", found)


def test_refuses_what_cannot_be_judged_in_its_own_words():
    with pytest.raises(
        BudgetMissed,
        match=r"precision int8 cannot be judged.*100 samples or more, or ask for precision fp32",
    ):
        refuse_missed_budget("int8", findings(int8=record("int8", "not enough data", samples=60)))
    assert BudgetMissed.exit_code == 3


def test_refuses_broken_engines_when_there_is_nothing_else():
    with pytest.raises(BudgetMissed, match="fp32 engine gives NaN"):
        refuse_missed_budget("auto", findings({"fp32": "fp32 engine gives NaN."}))
