"""Records and verdicts of engines, metric by metric, and accuracies in words."""

from __future__ import annotations

import numpy as np
import pytest

from engine_build.errors import SourceFault
from engine_build.evaluation.accuracy import (
    BrokenAnswers,
    OutputStandard,
    Standard,
    accuracy,
    compare,
    format_budget,
    format_record,
    format_scores,
    format_verdict,
    refuse_useless_labels,
    samples_needed,
    shortfall,
    verdict,
    way_out,
)
from onboarding.manifest import AccuracyRecord
from onboarding.model_spec import BudgetSpec

BUDGET = BudgetSpec(mean=0.99, worst=0.95)
REFERENCE = np.random.default_rng(0).standard_normal((200, 16)).astype(np.float32)


def standard(metric="cosine", budget=BUDGET, *, reference=REFERENCE, **changes):
    return Standard(reference=reference, metric=metric, budget=budget, **changes)


def noisy(noise):
    added = noise * np.random.default_rng(1).standard_normal(REFERENCE.shape)
    return (REFERENCE + added).astype(np.float32)


def scores_of_two_classes(right):
    """Rows whose class is 1 where `right`, else 0."""
    return np.where(np.asarray(right)[:, None], [0.0, 1.0], [1.0, 0.0])


@pytest.mark.parametrize("metric", ["cosine", "agreement", "relative_error"])
def test_identical_engine_passes_a_budget_of_one_and_rounding_is_no_loss(metric):
    record = accuracy("fp32 engine", REFERENCE.copy(), standard(metric, BudgetSpec(mean=1.0)))
    assert (record.mean, record.mean_interval, record.worst) == (1.0, (1.0, 1.0), 1.0)
    assert record.verdict == "pass"
    assert record.nearest_neighbour_agreement == (1.0 if metric == "cosine" else None)
    if metric == "cosine":
        rows, budget = REFERENCE * np.float32(1 + 1e-7), BudgetSpec(mean=1.0, worst=1.0)
        assert accuracy("fp32 engine", rows, standard(budget=budget)).verdict == "pass"


def test_noise_shows_in_every_number_and_alike_every_time():
    record = accuracy("int8 engine", noisy(0.6), standard())
    assert record.verdict == "fail"
    assert record.worst < record.mean_interval[0] < record.mean < record.mean_interval[1] < 0.99
    assert record.nearest_neighbour_agreement < 1
    assert accuracy("int8 engine", noisy(0.6), standard()) == record


def test_one_sample_far_off_fails_the_worst_budget_alone_and_is_named():
    reference = np.tile(REFERENCE, (5, 1))
    rows = reference.copy()
    rows[7] = -rows[7]
    expected = standard(reference=reference)
    record, outputs, worst = compare("int8 engine", rows, expected)
    assert (record.worst, record.mean > 0.989, record.verdict) == (-1.0, True, "fail")
    assert (outputs, worst) == ((), 7)
    record = accuracy(
        "int8 engine", rows, standard(budget=BudgetSpec(mean=0.99), reference=reference)
    )
    assert (record.worst, record.budget_worst, record.verdict) == (-1.0, None, "pass")


BROKEN = REFERENCE.copy()
BROKEN[[3, 9], 2] = np.nan, np.inf


NAN = "gives NaN or Inf for 2 of 200 samples"


@pytest.mark.parametrize(
    ("rows", "reference", "error", "words"),
    [
        (BROKEN, REFERENCE, BrokenAnswers, f"fp16 engine {NAN}, the first being sample 4: .*fp32"),
        (REFERENCE, BROKEN, SourceFault, f"the source model {NAN}"),
        (
            REFERENCE[:, :8],
            REFERENCE,
            SourceFault,
            r"\[200, 8\], the source model with \[200, 16\]",
        ),
    ],
    ids=["broken engine", "broken source", "another shape"],
)
def test_refuses_rows_that_cannot_be_compared(rows, reference, error, words):
    with pytest.raises(error, match=words):
        accuracy("fp16 engine", rows, standard(reference=reference))


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
    assert verdict(record(mean_interval=interval, worst=worst)) == expected
    # Few samples judge nothing, however good they are.
    assert verdict(record(mean_interval=interval, worst=worst, samples=99)) == "not enough data"


@pytest.mark.parametrize(
    ("interval", "expected"),
    [
        ((0.91, 0.95), "pass"),
        ((0.90, 0.95), "pass"),
        ((0.85, 0.89), "fail"),
        ((0.88, 0.95), "not enough data"),
    ],
)
def test_verdict_follows_from_the_neighbours_that_a_budget_asks_for(interval, expected):
    passing = {"mean_interval": (0.991, 0.995), "nearest_neighbour_interval": interval}
    assert verdict(record(budget_neighbours=0.9, **passing)) == expected
    assert verdict(record(**passing)) == "pass"


def test_a_budget_of_neighbours_fails_an_engine_whose_mean_holds():
    for neighbours, expected in ((None, "pass"), (0.9, "fail")):
        budget = BudgetSpec(mean=0.9, neighbours=neighbours)
        result = accuracy("int8 engine", noisy(0.4), standard(budget=budget))
        low, high = result.nearest_neighbour_interval
        assert low < result.nearest_neighbour_agreement < high < 0.9
        assert (result.budget_neighbours, result.verdict) == (neighbours, expected)
    # They have none where vectors have no angle.
    result = accuracy("int8 engine", REFERENCE, standard("relative_error", budget))
    assert (result.nearest_neighbour_agreement, result.budget_neighbours) == (None, None)


def test_missing_neighbours_are_the_shortfall_and_decide_the_samples_needed():
    close = record(
        budget_neighbours=0.92,
        mean_interval=(0.9905, 0.9915),
        nearest_neighbour_interval=(0.86, 0.94),
    )
    assert shortfall(close) == pytest.approx(0.02)
    assert samples_needed(close) == 880
    words = (
        "same nearest neighbour 0.900 (0.860 to 0.940); budget mean 0.99 and worst 0.95 and same "
        "nearest neighbour 0.92: not enough data"
    )
    assert format_record(close).endswith(words)


def share_of_accuracy(samples, source, engine):
    """The record of an engine that gets so many samples right, its source so many."""
    labels = np.ones(samples, dtype=int)
    reference = scores_of_two_classes(np.arange(samples) < source)
    rows = scores_of_two_classes(np.arange(samples) < engine)
    return accuracy("int8 engine", rows, standard("accuracy", reference=reference, labels=labels))


def test_accuracy_is_the_share_that_is_kept_of_the_source_models_own():
    record = share_of_accuracy(400, source=300, engine=297)
    assert record.mean == 0.99
    assert record.mean_interval[0] < 0.99 < record.mean_interval[1]
    assert (record.verdict, record.worst, record.budget_worst) == ("not enough data", 0.0, None)
    assert record.nearest_neighbour_agreement is None
    # An engine that is right more often than its source passes.
    record = share_of_accuracy(200, source=100, engine=150)
    assert (record.mean, record.worst, record.verdict) == (1.5, 1.0, "pass")


def test_refuses_labels_that_the_source_never_gets_right():
    reason = r"none of the 4 labels of data\.tsv right.*use metric agreement"
    with pytest.raises(SourceFault, match=reason):
        wrong, labels = np.tile([1.0, 0.0], (4, 1)), np.ones(4, dtype=int)
        refuse_useless_labels(standard("accuracy", reference=wrong, labels=labels), "data.tsv")


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


def test_record_has_its_interval_and_budget_and_a_worst_that_says_something():
    assert format_record(record(verdict="pass")) == (
        "int8 engine: mean cosine 0.99100 (95 % interval 0.98900 to 0.99300) and worst 0.96000 on "
        "200 samples, same nearest neighbour 0.900; budget mean 0.99 and worst 0.95: pass"
    )
    agreement = record(metric="agreement", budget_worst=None, nearest_neighbour_agreement=None)
    texts = format_scores(agreement), format_budget(agreement), format_record(agreement)
    assert "worst" not in "".join(texts)


@pytest.mark.parametrize(
    ("changes", "verdict", "way"),
    [
        (
            {},
            "lies within an interval",
            "give the accuracy dataset about 880 samples so that the interval is narrower, lower "
            "the budget, or ask for fp32",
        ),
        ({"samples": 60}, "fewer than 100 samples", "100 samples or more"),
        ({"verdict": "fail"}, "outside the budget", "another precision"),
    ],
)
def test_verdict_that_is_no_pass_has_its_reason_and_way_out(changes, verdict, way):
    assert verdict in format_verdict(record(**changes))
    assert way in way_out(record(**changes))
    # They grow as the mean nears the budget.
    needed = {0.99: None, 0.9900001: None, 0.9895: 10780, 0.985: 563}
    assert {mean: samples_needed(record(mean=mean)) for mean in needed} == needed


FEATURES = np.random.default_rng(3).standard_normal((200, 512)).astype(np.float32)
LOGITS = np.random.default_rng(4).standard_normal((200, 4)).astype(np.float32)
BOTH = np.concatenate([FEATURES, LOGITS], axis=1)


def two(metric="cosine", budget=BUDGET, logits_metric=None, logits_budget=None):
    """The standard of both outputs, the second with a metric and a budget of its own."""
    outputs = (
        OutputStandard(name="features", size=512, metric=metric, budget=budget),
        OutputStandard(
            name="logits",
            size=4,
            metric=metric if logits_metric is None else logits_metric,
            budget=budget if logits_budget is None else logits_budget,
        ),
    )
    return standard(metric, budget, reference=BOTH, outputs=outputs)


@pytest.mark.parametrize("metric", ["cosine", "relative_error"])
def test_the_budget_holds_for_every_output_by_itself(metric):
    shuffled = np.concatenate([FEATURES, LOGITS[::-1]], axis=1)
    budget = BudgetSpec(mean=0.9)
    one = standard(budget=budget, reference=BOTH)
    assert accuracy("int8 engine", shuffled, one).verdict == "pass"
    record = accuracy("int8 engine", shuffled, two(metric, budget))
    assert (record.subject, record.verdict) == ("int8 engine, output logits", "fail")
    assert accuracy("int8 engine", BOTH, two(metric, budget)).verdict == "pass"


def test_each_output_has_a_metric_and_a_budget_of_its_own():
    rows = BOTH.copy()
    rows[:, 512:] += 0.2 * np.random.default_rng(3).standard_normal((len(BOTH), 4))
    strict = accuracy("fp16 engine", rows, two())
    assert (strict.subject, strict.verdict) == ("fp16 engine, output logits", "fail")
    lenient = two(logits_budget=BudgetSpec(mean=0.5))
    assert accuracy("fp16 engine", rows, lenient).verdict == "pass"
    other = two(logits_metric="agreement", logits_budget=BudgetSpec(mean=0.6))
    features, logits = compare("fp16 engine", rows, other).outputs
    assert (features.metric, features.budget_mean) == ("cosine", 0.99)
    assert (logits.metric, logits.budget_mean, logits.verdict) == ("agreement", 0.6, "pass")


def test_the_worst_sample_is_of_the_output_that_is_furthest_from_the_budget():
    rows = BOTH.copy()
    rows[5, :512] += 0.05
    rows[9, 512:] *= -1
    assert compare("int8 engine", rows, two()).worst == 9
