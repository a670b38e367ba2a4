"""The decision and its sentence."""

from __future__ import annotations

import pytest

from engine_build.errors import BudgetMissed
from engine_build.judgement.decision import Findings, decision, refuse_missed_budget
from onboarding.manifest import AccuracyRecord, SpeedupRecord

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
    found = decision("auto", findings(fp32="pass", int8="pass"), [speed()])
    assert found.precision == "int8"
    assert found.sentence == (
        "int8: int8 is 2.50 times as fast as fp32 at 8 x 64 (95 % interval 2.40 to 2.60; rounds of two copies of fp32: "
        "0.99 to 1.02), and has mean cosine 0.99500 (95 % interval 0.99400 to 0.99600) and worst 0.97000 on 200 samples, "
        "within the budget of mean 0.99 and worst 0.95."
    )


def test_auto_keeps_fp32_when_int8_is_no_faster_than_noise():
    found = decision("auto", findings(fp32="pass", int8="pass"), [speed(**SLOW)])
    assert found.precision == "fp32"
    assert found.sentence.startswith(
        "fp32: int8 is not faster by more than noise and 5 %: 1.08 times as fast as fp32 at 8 x 64"
    )


def test_auto_takes_int8_only_when_it_is_faster_at_every_profiles_opt_shape():
    found = decision(
        "auto", findings(fp32="pass", int8="pass"), [speed(), speed(sequence=128, **SLOW)]
    )
    assert (
        found.precision == "fp32"
        and "at 8 x 128" in found.sentence
        and "at 8 x 64" not in found.sentence
    )


@pytest.mark.parametrize(
    ("verdict", "told"),
    [("fail", "outside the budget"), ("not enough data", "not enough data to judge it")],
)
def test_auto_keeps_fp32_when_int8_does_not_pass(verdict, told):
    found = decision("auto", findings(fp32="pass", int8=verdict), [speed()])
    assert found.precision == "fp32" and told in found.sentence


def test_auto_keeps_fp16_on_a_gpu_and_measures_against_it():
    found = decision("auto", findings(fp16="pass", int8="pass"), [speed("fp16", **SLOW)])
    assert found.precision == "fp16" and "as fast as fp16" in found.sentence


@pytest.mark.parametrize("verdict", ["fail", "not enough data"])
def test_auto_falls_back_to_fp32_where_fp16_does_not_pass(verdict):
    found = decision("auto", findings(fp16=verdict, int8="fail", fp32="pass"), [])
    assert found.precision == "fp32" and "; fp16 has mean cosine" in found.sentence


def test_auto_falls_back_to_fp32_where_fp16_overflows():
    broken = {"fp16": "fp16 engine gives NaN or Inf for 3 of 200 samples."}
    found = decision("auto", findings(broken, int8="fail", fp32="pass"), [])
    assert found.precision == "fp32" and found.sentence.endswith(
        "fp16 engine gives NaN or Inf for 3 of 200 samples."
    )


def test_auto_says_that_int8_is_broken():
    found = decision("auto", findings({"int8": "int8 engine gives NaN."}, fp32="pass"), [])
    assert (found.precision, found.sentence) == ("fp32", "fp32: int8 engine gives NaN.")


def test_auto_without_calibration_says_so():
    found = decision("auto", findings(fp32="pass"), [])
    assert found.precision == "fp32" and "gives no calibration samples" in found.sentence


def test_auto_takes_int8_when_no_float_engine_passes():
    found = decision("auto", findings(fp32="fail", int8="pass"), [])
    assert found.precision == "int8" and found.sentence.endswith(
        "no float engine is within the budget."
    )


def test_requested_precision_is_told_with_its_numbers():
    found = decision("int8", findings(int8="pass"), [])
    assert found.precision == "int8" and found.sentence.startswith(
        "int8, as asked: mean cosine 0.99500"
    )


def test_fp32_is_published_with_few_samples():
    refuse_missed_budget("fp32", findings(fp32=record("fp32", "not enough data", samples=20)))


def test_refuses_int8_outside_its_budget_with_the_closest_result():
    with pytest.raises(
        BudgetMissed,
        match=r"precision int8 misses .* closest, int8, has mean cosine 0\.98.*wanted mean 0.99 and worst 0.95; ask|lower",
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
