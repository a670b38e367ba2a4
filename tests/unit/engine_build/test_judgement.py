"""Accuracy, benchmark and decision: numbers in, sentence out."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from engine_build.accuracy import accuracy, rows_by_length
from engine_build.benchmark import Subject, benchmark, shapes, table, with_control
from engine_build.decision import decision, refuse_missed_budget
from engine_build.errors import BudgetMissed
from engine_build.feed import Shape
from onboarding.manifest import BenchmarkRecord
from onboarding.model_spec import BudgetSpec, OptimizationProfileSpec

OPT = Shape(batch=8, sequence=64)
BUDGET = BudgetSpec(mean=0.99, worst=0.95)
RANDOM = np.random.default_rng(0)
REFERENCE = RANDOM.standard_normal((200, 16))


def judged(noise, *, rows=200):
    return accuracy("engine", REFERENCE[:rows] + noise * RANDOM.standard_normal((rows, 16)), REFERENCE[:rows], BUDGET)


def timed(**p50):
    names = {"control": "fp32 (duplicate control)"}
    return [
        BenchmarkRecord(
            runtime="onnxruntime",
            precision=names.get(name, name),
            batch=8,
            sequence=64,
            average_ms=value,
            p50_ms=value,
            p95_ms=value,
            p99_ms=value,
            rows_per_second=1.0,
            repetitions=9,
        )
        for name, value in p50.items()
    ]


def decided(int8, measured, requested="auto"):
    return decision(
        requested, {"fp32": judged(0.0), "int8": int8}, measured, runtime="onnxruntime", opt_shape=Shape(batch=8, sequence=64)
    )


def test_same_rows_agree_whatever_their_length():
    record = accuracy("engine", REFERENCE * 3, REFERENCE, BUDGET)
    assert (record.mean, record.worst, record.nearest_neighbour_agreement, record.verdict) == (1.0, 1.0, 1.0, "pass")


def test_noise_shows_in_every_number():
    record = judged(0.6)
    assert record.verdict == "fail"
    assert record.worst < record.mean < 0.99 and record.nearest_neighbour_agreement < 1


def test_one_bad_row_fails_the_worst_budget():
    rows = REFERENCE.copy()
    rows[7] = -rows[7]
    record = accuracy("engine", rows, REFERENCE, BUDGET)
    assert (record.worst, record.mean > 0.989, record.verdict) == (-1.0, True, "fail")


def test_nan_rows_fail():
    rows = REFERENCE.copy()
    rows[3] = np.nan
    assert accuracy("engine", rows, REFERENCE, BUDGET).verdict == "fail"


def test_few_samples_judge_nothing():
    assert judged(0.0, rows=99).verdict == "not enough data"


def test_rows_come_back_in_the_order_of_their_texts():
    class Encoder:
        def feeds(self, texts, batch):
            yield from (texts[begin : begin + batch] for begin in range(0, len(texts), batch))

        def length(self, text):
            return len(text)

    texts = ["ccc", "a", "bb", "dddd"]
    assert rows_by_length(lambda feed: np.array([[len(text)] for text in feed]), Encoder(), texts, 3).tolist() == [
        [3],
        [1],
        [2],
        [4],
    ]


def test_shapes_are_those_of_the_profiles_each_once():
    profiles = [OptimizationProfileSpec(batch=(1, 8, 8), sequence=(4, 4, 4)), OptimizationProfileSpec(batch=(1, 2, 3))]
    assert [(each.batch, each.sequence) for each in shapes(profiles)] == [(1, 4), (8, 4), (1, None), (2, None), (3, None)]


def test_benchmark_measures_every_subject_the_same_number_of_times():
    ticks = itertools.count(step=0.001)
    subjects = with_control([Subject(runtime="r", precision="fp32", run=len), Subject(runtime="r", precision="int8", run=len)])
    feeds = [(Shape(batch=4, sequence=8), {}), (Shape(batch=1, sequence=8), {})]
    records = benchmark(subjects, feeds, seconds=0.1, clock=lambda: next(ticks))
    assert [record.precision for record in records[:3]] == ["fp32", "int8", "fp32 (duplicate control)"]
    assert {record.repetitions for record in records} == {8} and {record.p50_ms for record in records} == {1.0}
    assert records[0].rows_per_second == 4000
    assert "fp32 (duplicate control)" in table(records) and len(table(records).splitlines()) == 7


def test_benchmark_runs_each_subject_once_even_without_time():
    assert [
        each.repetitions
        for each in benchmark([Subject(runtime="r", precision="p", run=len)], [(Shape(batch=1, sequence=1), {})], seconds=0)
    ] == [1]


def test_auto_takes_int8_that_is_faster_and_accurate():
    found = decided(judged(0.01), timed(fp32=10.0, int8=4.0, control=10.5))
    assert found.precision == "int8"
    assert "2.50 times as fast as fp32 at 8 x 64 (4.0 ms against 10.0 ms, median)" in found.sentence
    assert "within the budget of mean 0.99 and worst 0.95" in found.sentence


def test_auto_keeps_fp32_when_int8_is_no_faster_than_noise():
    found = decided(judged(0.01), timed(fp32=10.0, int8=9.5, control=11.0))
    assert found.precision == "fp32" and found.sentence.startswith("fp32: int8 is only 1.05 times as fast")


def test_auto_keeps_fp32_when_int8_is_outside_the_budget():
    found = decided(judged(0.6), timed(fp32=10.0, int8=1.0, control=10.0))
    assert found.precision == "fp32" and "outside the budget" in found.sentence


def test_auto_without_calibration_says_so():
    found = decision("auto", {"fp32": judged(0.0)}, [], runtime="onnxruntime", opt_shape=Shape(batch=8, sequence=64))
    assert found.precision == "fp32" and "gives no calibration samples" in found.sentence


def test_fp32_is_published_with_few_samples():
    refuse_missed_budget("fp32", {"fp32": judged(0.0, rows=20)})


def test_refuses_int8_outside_its_budget_with_the_closest_result():
    with pytest.raises(
        BudgetMissed, match=r"precision int8 misses .* closest, int8, has mean cosine 0\.\d+ .*wanted mean 0.99 and worst 0.95"
    ):
        refuse_missed_budget("int8", {"int8": judged(0.6)})
