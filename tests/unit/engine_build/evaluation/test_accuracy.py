"""Records and verdicts of engines, metric by metric.

Accuracies in words.
"""

from __future__ import annotations

import numpy as np
import pytest

from engine_build.errors import SourceFault
from engine_build.evaluation.accuracy import (
    BrokenAnswers,
    Standard,
    accuracy,
    format_budget,
    format_record,
    format_scores,
    format_verdict,
    output_sizes,
    refuse_useless_labels,
    samples_needed,
    verdict,
    way_out,
    worst_sample,
)
from onboarding.manifest import AccuracyRecord, TensorRecord
from onboarding.model_spec import BudgetSpec

BUDGET = BudgetSpec(mean=0.99, worst=0.95)
REFERENCE = np.random.default_rng(0).standard_normal((200, 16)).astype(np.float32)


def standard(metric="cosine", budget=BUDGET, *, reference=REFERENCE, labels=None):
    return Standard(reference=reference, metric=metric, budget=budget, labels=labels)


def noisy(noise, *, rows=200):
    return (REFERENCE[:rows] + noise * np.random.default_rng(1).standard_normal((rows, 16))).astype(
        np.float32
    )


def scores_of_two_classes(right):
    """Rows whose class is 1 where `right`, else 0."""
    return np.where(np.asarray(right)[:, None], [0.0, 1.0], [1.0, 0.0])


@pytest.mark.parametrize("metric", ["cosine", "agreement", "relative_error"])
def test_identical_engine_passes_a_budget_of_one(metric):
    record = accuracy("fp32 engine", REFERENCE.copy(), standard(metric, BudgetSpec(mean=1.0)))
    assert (record.mean, record.mean_interval, record.worst, record.verdict) == (
        1.0,
        (1.0, 1.0),
        1.0,
        "pass",
    )


def test_rounding_of_float32_is_no_loss():
    found = REFERENCE * np.float32(1 + 1e-7)
    assert (
        accuracy("fp32 engine", found, standard(budget=BudgetSpec(mean=1.0, worst=1.0))).verdict
        == "pass"
    )


def test_noise_shows_in_every_number():
    record = accuracy("int8 engine", noisy(0.6), standard())
    assert record.verdict == "fail"
    assert record.worst < record.mean_interval[0] < record.mean < record.mean_interval[1] < 0.99
    assert record.nearest_neighbour_agreement < 1


def test_one_sample_far_off_fails_the_worst_budget_and_is_named():
    rows = REFERENCE.copy()
    rows[7] = -rows[7]
    record = accuracy("int8 engine", rows, standard())
    assert (record.worst, record.mean > 0.989, record.verdict) == (-1.0, True, "fail")
    assert worst_sample(rows, standard()) == 7


def test_one_sample_far_off_is_no_matter_without_a_worst_budget():
    rows = np.tile(REFERENCE, (5, 1))
    rows[7] = -rows[7]
    record = accuracy(
        "int8 engine",
        rows,
        standard(budget=BudgetSpec(mean=0.99), reference=np.tile(REFERENCE, (5, 1))),
    )
    assert (record.worst, record.budget_worst, record.verdict) == (-1.0, None, "pass")


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_refuses_rows_that_are_broken_with_how_many_and_where(value):
    rows = REFERENCE.copy()
    rows[[3, 9], 2] = value
    with pytest.raises(
        BrokenAnswers,
        match=(
            r"fp16 engine gives NaN or Inf for 2 of 200 samples, the first being sample 4: .*fp32"
        ),
    ):
        accuracy("fp16 engine", rows, standard())


def test_refuses_a_source_that_is_broken_itself():
    broken = REFERENCE.copy()
    broken[0] = np.nan
    with pytest.raises(SourceFault, match="the source model gives NaN or Inf for 1 of 200 samples"):
        accuracy("fp32 engine", REFERENCE, standard(reference=broken))


def test_refuses_answers_of_another_shape():
    with pytest.raises(SourceFault, match=r"shape \[200, 8\], the source model with \[200, 16\]"):
        accuracy("fp32 engine", REFERENCE[:, :8], standard())


def test_few_samples_judge_nothing_however_good_they_are():
    assert (
        accuracy("int8 engine", REFERENCE[:99], standard(reference=REFERENCE[:99])).verdict
        == "not enough data"
    )


@pytest.mark.parametrize(
    ("interval", "worst", "expected"),
    [
        ((0.991, 0.995), 0.96, "pass"),
        ((0.990, 0.995), 0.95, "pass"),
        ((0.985, 0.989), 0.96, "fail"),
        ((0.991, 0.995), 0.94, "fail"),
        ((0.985, 0.995), 0.96, "not enough data"),
        ((0.985, 0.990), 0.96, "not enough data"),
        ((0.985, 0.995), 0.94, "fail"),
    ],
)
def test_verdict_follows_from_the_interval_and_the_worst(interval, worst, expected):
    assert verdict(interval, worst, 200, mean_budget=0.99, worst_budget=0.95) == expected


def test_accuracy_is_the_share_that_is_kept_of_the_source_models_own():
    labels = np.ones(400, dtype=int)
    source, engine = np.arange(400) < 300, np.arange(400) < 297
    found = standard("accuracy", reference=scores_of_two_classes(source), labels=labels)
    record = accuracy("int8 engine", scores_of_two_classes(engine), found)
    assert record.mean == 0.99
    assert record.mean_interval[0] < 0.99 < record.mean_interval[1]
    assert (record.verdict, record.worst, record.budget_worst) == ("not enough data", 0.0, None)
    assert record.nearest_neighbour_agreement is None


def test_engine_that_is_right_more_often_than_its_source_passes():
    labels = np.ones(200, dtype=int)
    found = standard(
        "accuracy", reference=scores_of_two_classes(np.arange(200) < 100), labels=labels
    )
    record = accuracy("int8 engine", scores_of_two_classes(np.arange(200) < 150), found)
    assert (record.mean, record.worst, record.verdict) == (1.5, 1.0, "pass")


def test_refuses_labels_that_the_source_never_gets_right():
    with pytest.raises(
        SourceFault, match=r"none of the 4 labels of data\.tsv right.*use metric agreement"
    ):
        refuse_useless_labels(np.tile([1.0, 0.0], (4, 1)), np.ones(4, dtype=int), "data.tsv")


def test_same_answers_are_judged_the_same_twice():
    assert accuracy("int8 engine", noisy(0.1), standard()) == accuracy(
        "int8 engine", noisy(0.1), standard()
    )


def record(**changes):
    fields = {
        "subject": "int8 engine",
        "metric": "cosine",
        "mean": 0.991,
        "mean_interval": (0.989, 0.993),
        "worst": 0.96,
        "samples": 200,
        "nearest_neighbour_agreement": 0.9,
        "budget_mean": 0.99,
        "budget_worst": 0.95,
        "verdict": "not enough data",
    }
    return AccuracyRecord(**(fields | changes))


def test_record_is_told_with_its_interval_and_budget():
    assert format_record(record(verdict="pass")) == (
        "int8 engine: mean cosine 0.99100 (95 % interval 0.98900 to 0.99300) and worst 0.96000 on "
        "200 samples, "
        "same nearest neighbour 90%; budget mean 0.99 and worst 0.95: pass"
    )


def test_worst_is_not_told_where_it_says_nothing():
    found = record(metric="agreement", budget_worst=None, nearest_neighbour_agreement=None)
    assert "worst" not in format_scores(found) + format_budget(found) + format_record(found)


def test_unclear_verdict_says_how_many_samples_would_tell():
    assert "lies within the interval" in format_verdict(record())
    assert way_out(record()) == (
        "give the accuracy dataset about 880 samples so that the interval is narrower, lower the "
        "budget, or ask for fp32"
    )


@pytest.mark.parametrize(
    ("mean", "needed"), [(0.99, None), (0.9900001, None), (0.9895, 10780), (0.985, 563)]
)
def test_samples_needed_grow_as_the_mean_nears_the_budget(mean, needed):
    assert samples_needed(record(mean=mean)) == needed


def test_too_few_samples_are_asked_for_by_number():
    found = record(samples=60)
    assert "fewer than 100 samples" in format_verdict(found) and "100 samples or more" in way_out(
        found
    )


def test_failed_budget_has_other_ways_out():
    assert "another precision" in way_out(
        record(verdict="fail")
    ) and "outside the budget" in format_verdict(record(verdict="fail"))


FEATURES = np.random.default_rng(3).standard_normal((200, 512)).astype(np.float32)
LOGITS = np.random.default_rng(4).standard_normal((200, 4)).astype(np.float32)
TWO = (("features", 512), ("logits", 4))


@pytest.mark.parametrize("metric", ["cosine", "relative_error"])
def test_the_budget_holds_for_every_output_by_itself(metric):
    reference = np.concatenate([FEATURES, LOGITS], axis=1)
    shuffled = np.concatenate([FEATURES, LOGITS[::-1]], axis=1)
    budget = BudgetSpec(mean=0.9)
    one = Standard(reference=reference, metric="cosine", budget=budget)
    assert accuracy("int8 engine", shuffled, one).verdict == "pass"
    each = Standard(reference=reference, metric=metric, budget=budget, outputs=TWO)
    record = accuracy("int8 engine", shuffled, each)
    assert (record.subject, record.verdict) == ("int8 engine, output logits", "fail")
    assert accuracy("int8 engine", reference, each).verdict == "pass"


def test_the_worst_sample_is_of_the_output_that_is_furthest_from_the_budget():
    reference = np.concatenate([FEATURES, LOGITS], axis=1)
    rows = reference.copy()
    rows[5, :512] += 0.05
    rows[9, 512:] *= -1
    outputs = Standard(reference=reference, metric="cosine", budget=BUDGET, outputs=TWO)
    assert worst_sample(rows, outputs) == 9


def test_output_sizes_are_those_of_several_outputs_of_fixed_size():
    def records(*shapes):
        return [
            TensorRecord(name=f"o{place}", datatype="FP32", shape=shape)
            for place, shape in enumerate(shapes)
        ]

    assert output_sizes(records((-1, 2, 3), (-1,))) == (("o0", 6), ("o1", 1))
    assert output_sizes(records((-1, 8))) == output_sizes(records((-1, 8), (-1, -1))) == ()
