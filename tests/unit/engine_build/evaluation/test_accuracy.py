"""Records and verdicts of engines, metric by metric; scores, and what each output asks for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engine_build.datasets.dataset import Samples
from engine_build.datasets.tensors import TensorEncoder
from engine_build.errors import InputRefused, SourceFault
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
    output_standards,
    refuse_useless_labels,
    samples_needed,
    shortfall,
    standard_of,
    verdict,
    way_out,
)
from engine_build.evaluation.scores import (
    cosines,
    mean_interval,
    median_interval,
    nearest,
    ordered_pairs,
    relative_scores,
)
from onboarding.manifest import AccuracyRecord
from onboarding.model_spec import AccuracySpec, BudgetSpec
from tests.unit.engine_build.graphs import node, tensor, write_graph
from tests.unit.engine_build.quantization import graphs
from tests.unit.engine_build.quantization.graphs import record as tensor_record

BUDGET = BudgetSpec(mean=0.99, worst=0.95)
REFERENCE = np.random.default_rng(0).standard_normal((200, 16)).astype(np.float32)


def standard(metric="cosine", budget=BUDGET, *, reference=REFERENCE, **changes):
    return Standard(reference=reference, metric=metric, budget=budget, **changes)


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


def two(logits_metric="cosine", logits_budget=BUDGET):
    """The standard of both outputs, the second with a metric and a budget of its own."""
    outputs = (
        OutputStandard(name="features", size=512, metric="cosine", budget=BUDGET),
        OutputStandard(name="logits", size=4, metric=logits_metric, budget=logits_budget),
    )
    return standard(reference=BOTH, outputs=outputs)


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


RANDOM = np.random.default_rng(0)
ROWS = RANDOM.standard_normal((300, 16)).astype(np.float32)


def test_cosine_forgets_length_and_zero_rows_score_by_whether_both_are_zero():
    assert cosines(3 * ROWS, ROWS).min() == pytest.approx(1.0)
    assert relative_scores(1.25 * ROWS, ROWS) == pytest.approx(np.full(300, 0.75), abs=1e-6)
    rows, reference = np.array([[0.0] * 4, [0.0] * 4, [1.0] * 4]), np.zeros((3, 4))
    reference[1] = 1
    assert cosines(rows, reference).tolist() == [1, 0, 0]
    assert relative_scores(rows, reference).tolist() == [1, 0, -1]
    reference = np.array([[0.001], [1.999]])
    scores = relative_scores(reference + 0.1, reference)
    assert scores == pytest.approx([0.9, 1 - 0.1 / 1.999]), "relative to the mean of all at least"


def test_nearest_row_is_never_itself_whatever_the_block():
    whole = nearest(ROWS, block=1000)
    assert (whole != np.arange(300)).all()
    assert (nearest(ROWS, block=7) == whole).all()
    similarity = ROWS @ ROWS.T / np.outer(*[np.linalg.norm(ROWS, axis=1)] * 2)
    np.fill_diagonal(similarity, -2)
    assert (whole == similarity.argmax(axis=1)).all()


VALUES = np.random.default_rng(1).normal(5.0, 2.0, size=400)


def test_interval_is_that_of_the_normal_approximation_and_narrows_with_the_samples():
    mean, reach = VALUES.mean(), 1.96 * VALUES.std() / np.sqrt(400)
    assert mean_interval(VALUES) == pytest.approx((mean - reach, mean + reach), abs=0.02)
    few, many = mean_interval(VALUES[:50]), mean_interval(VALUES)
    assert few[1] - few[0] > 2 * (many[1] - many[0])
    assert mean_interval(np.ones(100)) == (1.0, 1.0)
    for interval in (mean_interval, median_interval):
        assert interval(VALUES) == interval(VALUES.copy())


def test_order_is_of_the_pairs_of_one_query_that_the_source_model_orders():
    reference = np.array([[0.1], [0.2], [0.2], [0.9], [0.8]])
    rows = np.array([[1.0], [3.0], [0.5], [7.0], [8.0]])
    right, pairs = ordered_pairs(rows, reference, np.array([0, 0, 0, 1, 1]))
    assert pairs.tolist() == [2, 1, 1, 1, 1]
    assert right.tolist() == [1, 1, 0, 0, 0]


START = np.random.default_rng(0).standard_normal((6, 5)).astype(np.float32)
SAMPLES = Samples(values=tuple({"x": row} for row in START), labels=tuple("010101"))
START_END = np.concatenate([START, START], axis=1)


@pytest.fixture
def network(tmp_path):
    """Outputs start and end, [batch, tokens], as of a network that answers questions."""
    nodes = [node("Relu", "x", "start"), node("Neg", "x", "end")]
    outputs = [tensor(name, "batch", "tokens") for name in ("start", "end")]
    path = write_graph(tmp_path / "m.onnx", nodes, [tensor("x", "batch", "tokens")], outputs)
    outputs = (tensor_record("start", -1, -1), tensor_record("end", -1, -1))
    inputs = (tensor_record("x", -1, -1),)
    return graphs.network(path, inputs, outputs)


def spec(**outputs):
    return AccuracySpec(dataset="v.npz", metric="relative_error", outputs=outputs)


def test_sizes_follow_the_samples_and_an_output_without_a_budget_has_the_common_one(network):
    spec_ = spec(end={"metric": "cosine"}, start={"budget": {"mean": 0.5}})
    outputs = output_standards(spec_, network, TensorEncoder(network.inputs), SAMPLES.values)
    assert [(item.name, item.size, item.metric, item.budget.mean) for item in outputs] == [
        ("start", 5, "relative_error", 0.5),
        ("end", 5, "cosine", 0.99),
    ]


def test_labels_belong_to_the_output_whose_metric_needs_them(network):
    outputs = (tensor_record("start", -1, 5), tensor_record("end", -1, 5))
    classes = graphs.network(network.path, network.inputs, outputs)
    encoder, spec_ = TensorEncoder(network.inputs), spec(end={"metric": "accuracy"})
    standard = standard_of(spec_, classes, encoder, SAMPLES, START_END, "v.npz")
    assert standard.labels.tolist() == [0, 1, 0, 1, 0, 1]
    assert [output.metric for output in standard.outputs] == ["relative_error", "accuracy"]
    without = Samples(values=SAMPLES.values)
    with pytest.raises(InputRefused, match=r"v.npz has no labels, and metric accuracy needs them"):
        standard_of(spec_, classes, encoder, without, START_END, "v.npz")


def test_refuses_a_budget_of_an_output_that_is_not_there(network):
    words = r"names 'logits', which is no output of the network; allowed: start, end"
    with pytest.raises(InputRefused, match=words):
        output_standards(spec(logits={}), network, TensorEncoder(network.inputs), SAMPLES.values)


def head(*shape, activation, labels):
    outputs, facts = (tensor_record("logits", *shape),), {"activation": activation}
    fields = {"facts": facts, "tokenizer": Path("tokenizer.json"), "labels": labels}
    return graphs.network(Path("m.onnx"), (), outputs, **fields)


def judge(network, samples, metric, reference, rows):
    spec = AccuracySpec(dataset="a.tsv", metric=metric, budget=BudgetSpec(mean=0.9))
    return accuracy(
        "it", rows, standard_of(spec, network, TensorEncoder(()), samples, reference, "a.tsv")
    )


def test_tokens_weigh_alike_whatever_their_texts():
    tagger = head(-1, -1, 2, activation="softmax", labels=("O", "B"))
    reference = np.zeros((120, 4, 2), np.float32)
    reference[:, 0, 1] = 1
    reference[:60, 1:, 0] = 1
    rows = reference.copy()
    rows[60:, 0] = [1, 0]
    samples = Samples(values=tuple(map(str, range(120))))
    flat = judge(tagger, samples, "agreement", reference.reshape(120, -1), rows.reshape(120, -1))
    # 60 texts of four tokens are right, 60 of one token are wrong.
    assert flat.mean == pytest.approx(240 / 300) and flat.worst == 0


def test_labels_that_are_chosen_one_by_one_agree_as_a_set():
    multi = head(-1, 2, activation="sigmoid", labels=("a", "b"))
    reference = np.tile(np.array([[3.0, -1.0]], np.float32), (120, 1))
    rows = reference * 3
    rows[:30, 1] = 1
    samples = Samples(values=tuple(map(str, range(120))))
    assert judge(multi, samples, "agreement", reference, rows).mean == 0.75
