"""Latency in rounds, speed against noise, and the decision with its sentence."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from engine_build.datasets.dataset import Shape
from engine_build.errors import BudgetMissed
from engine_build.evaluation.decision import (
    Findings,
    decide,
    format_speedup,
    is_faster,
    left_out,
    refuse_missed_budget,
    required_speedup,
    speedup,
)
from engine_build.evaluation.latency import (
    Engine,
    Latencies,
    Track,
    format_latencies,
    measure_latencies,
    summaries,
    summary,
)
from onboarding.manifest import AccuracyRecord, SpeedupRecord

SHAPE = Shape(batch=8, sequence=64)


def measured_speedup(candidate, control, *, noise=0.02, rounds=40, seed=0):
    """Rounds of a baseline of 10 ms, a candidate and a control so many times as fast, under load
    that comes and goes.
    """
    random = np.random.default_rng(seed)
    load = np.where(np.sin(np.arange(rounds) / 5) > 0, 2.0, 1.0)[:, None]
    means = 10.0 / np.array([1.0, candidate, control])
    times = means * load * np.exp(noise * random.standard_normal((rounds, 3)))
    latencies = Latencies(shape=SHAPE, milliseconds=times[:, :, None])
    return speedup(latencies, candidate=(1, "int8"), baseline=(0, "fp32"), control=2)


def test_gain_above_the_noise_is_faster():
    record = measured_speedup(2.0, 1.0)
    assert is_faster(record)
    assert record.ratio == pytest.approx(2.0, rel=0.03)
    assert record.low <= record.ratio <= record.high
    assert (record.candidate, record.baseline) == ("int8", "fp32")
    assert (record.batch, record.sequence) == (8, 64)
    assert format_speedup(measured_speedup(2.0, 1.0, noise=0.0)) == (
        "2.00 times as fast as fp32 at 8 x 64 (95 % interval 2.00 to 2.00; rounds of two copies "
        "of fp32: 1.00 to 1.00)"
    )


@pytest.mark.parametrize(
    ("candidate", "control", "options", "least"),
    [
        (1.3, 1.35, {}, 1.3),
        (1.3, 1 / 1.35, {}, 1.3),
        (0.8, 1.0, {}, 1.05),
        # Noise does not shrink with more rounds.
        (1.2, 1.0, {"noise": 0.2, "rounds": 5000}, 1.3),
        # A gain below five percent is not worth it.
        (1.03, 1.0, {"noise": 0.001}, 1.05),
    ],
    ids=["noise", "noise in the other direction", "slower", "many rounds", "five percent"],
)
def test_gain_within_the_noise_is_not_faster(candidate, control, options, least):
    record = measured_speedup(candidate, control, **options)
    assert not is_faster(record) and required_speedup(record) >= least
    if least == 1.05 and candidate > 1:
        assert record.low > max(1.0, record.control_high) and required_speedup(record) == least


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
        precision: value if isinstance(value, AccuracyRecord) else record(precision, value)
        for precision, value in verdicts.items()
    }
    return Findings(accuracy=accuracy, broken={} if broken is None else broken)


def speed(baseline="fp32", sequence=64, candidate="int8", **numbers):
    names = {"candidate": candidate, "baseline": baseline}
    return SpeedupRecord(**names, batch=8, sequence=sequence, **(numbers or FAST))


PASSES = findings(fp32="pass", int8="pass")
OVERFLOW = {"fp16": "fp16 engine gives NaN or Inf for 3 of 200 samples."}


UNCLEAR = "not enough data"
NAN = {"int8": "int8 engine gives NaN."}
SLOWER = "fp32: int8 is not faster by more than noise and 5 %: 1.08 times as fast as fp32 at 8 x 64"


@pytest.mark.parametrize(
    ("results", "speedups", "precision", "reason"),
    [
        (PASSES, [speed(**SLOW)], "fp32", SLOWER),
        (
            PASSES,
            [speed(), speed(sequence=128, **SLOW)],
            "fp32",
            "5 %: 1.08 times as fast as fp32 ",
        ),
        (findings(fp32="pass", int8="fail"), [speed()], "fp32", "outside the budget"),
        (findings(fp32="pass", int8=UNCLEAR), [speed()], "fp32", "not enough data to judge it"),
        (findings(fp16="pass", int8="pass"), [speed("fp16", **SLOW)], "fp16", "as fast as fp16"),
        (findings(fp16="fail", int8="fail", fp32="pass"), [], "fp32", "; fp16 has mean cosine"),
        (findings(fp16=UNCLEAR, int8="fail", fp32="pass"), [], "fp32", "; fp16 has mean cosine"),
        (findings(OVERFLOW, int8="fail", fp32="pass"), [], "fp32", f"; {OVERFLOW['fp16']}"),
        (findings(NAN, fp32="pass"), [], "fp32", "fp32: int8 engine gives NaN."),
        (findings(fp32="pass"), [], "fp32", "gives no calibration samples"),
        (findings(fp32="fail", int8="pass"), [], "int8", "no float engine is within the budget."),
    ],
)
def test_auto_says_why_it_takes_an_engine(results, speedups, precision, reason):
    decision = decide("auto", results, speedups)
    assert decision.precision == precision and reason in decision.sentence
    if len(speedups) > 1:
        # Only the shapes at which INT8 is too slow.
        assert "at 8 x 128" in decision.sentence and "at 8 x 64" not in decision.sentence


FASTER = {**FAST, "ratio": 2.8, "low": 2.7, "high": 2.9}
EIGHT_BITS = {"fp16": "pass", "int8": "pass", "fp8": "pass"}


@pytest.mark.parametrize(
    ("results", "of_fp8", "precision", "words"),
    [
        (findings(**EIGHT_BITS), FASTER, "fp8", ("int8 is 2.50 times", "fp8 is 2.80 times")),
        (findings(**EIGHT_BITS), SLOW, "int8", ("int8 is 2.50", "fp8 is not faster by more")),
        (findings(**EIGHT_BITS | {"fp8": "fail"}), FASTER, "int8", ("fp8 has mean cosine",)),
        (findings(**EIGHT_BITS | {"int8": "fail"}), FASTER, "fp8", ("int8 has mean cosine",)),
        (findings(fp16="fail", int8="fail", fp8="pass"), FASTER, "fp8", ("no float engine",)),
        (
            Findings(
                accuracy={"fp16": record("fp16")},
                broken={"int8": "int8 engine gives NaN."},
                refused={"fp8": "the network has no MatMul."},
            ),
            FASTER,
            "fp16",
            ("int8 engine gives NaN; fp8 was not tried, since the network has no MatMul.",),
        ),
    ],
    ids=["both", "fp8 slow", "fp8 inaccurate", "int8 inaccurate", "no float", "none"],
)
def test_auto_takes_the_fastest_of_eight_bits_that_is_accurate(results, of_fp8, precision, words):
    speedups = [speed("fp16"), speed("fp16", candidate="fp8", **of_fp8)]
    decision = decide("auto", results, speedups)
    assert decision.precision == precision and decision.sentence.startswith(f"{precision}: ")
    assert [word for word in words if word not in decision.sentence] == []


def test_requested_precision_has_its_numbers_and_fp32_is_published_with_few_samples():
    decision = decide("int8", findings(int8="pass"), [])
    assert decision.precision == "int8"
    assert decision.sentence.startswith("int8, as asked: mean cosine 0.99500")
    refuse_missed_budget("fp32", findings(fp32=record("fp32", "not enough data", samples=20)))


@pytest.mark.parametrize(
    ("requested", "results", "reason"),
    [
        (
            "auto",
            findings(
                fp16=record("fp16", "fail", mean=0.9899),
                int8=record("int8", "fail", mean=0.97),
                fp32=record("fp32", "fail", worst=0.1),
            ),
            r"precision auto misses .* closest, fp16, has mean cosine 0\.98990",
        ),
        ("auto", findings({"fp32": "fp32 engine gives NaN."}), "fp32 engine gives NaN"),
    ],
)
def test_refuses_a_missed_budget_with_the_closest_result(requested, results, reason):
    with pytest.raises(BudgetMissed, match=reason) as caught:
        refuse_missed_budget(requested, results)
    assert caught.value.exit_code == 3


REQUESTED = "the model file asks for fp16"
GIVEN = "the source's own Q/DQ nodes leave no choice"
NO_CPU = "ONNX Runtime on a CPU gains nothing by it"
ONLY = "auto takes it only where FP16 misses the budget"
NONE = "no candidate of this target"


REFUSED = Findings(accuracy={"fp32": record("fp32")}, broken={}, refused={"int8": "no layer."})
CPU, GPU = {"is_cpu": True, "is_given": False}, {"is_cpu": False, "is_given": False}


@pytest.mark.parametrize(
    ("requested", "found", "flags", "reasons"),
    [
        ("auto", REFUSED, CPU, {"fp16": NO_CPU, "int8": "no layer.", "fp8": NONE}),
        ("auto", findings(fp16="pass", int8="pass"), GPU, {"fp32": ONLY, "fp8": NONE}),
        ("fp16", findings(fp16="pass"), GPU, dict.fromkeys(("fp32", "int8", "fp8"), REQUESTED)),
        (
            "auto",
            findings(int8="pass"),
            {"is_cpu": True, "is_given": True},
            dict.fromkeys(("fp32", "fp16", "fp8"), GIVEN),
        ),
        (
            "auto",
            findings(NAN, fp32="pass"),
            CPU,
            {"fp16": NO_CPU, "int8": NAN["int8"], "fp8": NONE},
        ),
    ],
    ids=["refused", "auto on a GPU", "asked", "given", "unsound"],
)
def test_a_precision_without_a_sound_engine_has_its_reason(requested, found, flags, reasons):
    assert left_out(requested, found, **flags) == reasons


class Clock:
    """Stands still until a subject runs."""

    def __init__(self):
        self.now = 0.0
        self.runs = []

    def __call__(self):
        return self.now

    def subject(self, name, milliseconds, **changes):
        def run(feed):
            self.runs.append((name, feed["shape"]))
            self.now += milliseconds / 1000

        return Engine(runtime="r", precision=name, run=run, **changes)

    def measure(self, subjects, tracks, seconds):
        return measure_latencies(subjects, tracks, seconds=seconds, clock=self)


@pytest.fixture
def clock():
    return Clock()


def track(batch, **changes):
    return Track(shape=Shape(batch=batch, sequence=8), feed={"shape": batch}, **changes)


def test_settling_runs_come_before_each_turn_and_are_not_measured(clock):
    """A plan's first runs of a shape prepare it, and are slower."""
    subject, runs = clock.subject("plan", 0.0, settling=0.02), []

    def run(feed):
        turn = len(runs) if not runs or runs[-1] == feed["shape"] else 0
        runs[:] = [*runs[:turn], feed["shape"]]
        clock.now += 0.05 if len(runs) <= 2 else 0.004

    subject = dataclasses.replace(subject, run=run)
    for latencies in clock.measure([subject], [track(1), track(2)], 5.0):
        assert latencies.of(0) == pytest.approx(np.full(len(latencies.of(0)), 4.0))


def test_engine_settles_for_seconds_before_each_turn(clock):
    """A GPU's clock follows the work of the engine that runs."""
    subjects = [clock.subject("gpu", 1.0, settling=0.2), clock.subject("cpu", 30.0)]
    (latencies,) = clock.measure(subjects, [track(1, least=2)], 0.0)
    assert len(latencies.of(0)) == len(latencies.of(1)) == 2
    names = [name for name, _ in clock.runs]
    assert names.count("cpu") == 2 + 1 and names.count("gpu") == pytest.approx(2 * 201 + 30, abs=2)


def test_shapes_take_turns_share_the_time_by_weight_and_end_when_it_is_over(clock):
    tracks = [track(1), track(2, weight=3.0)]
    light, heavy = clock.measure([clock.subject("a", 10.0)], tracks, 4.0)
    assert heavy.of(0).size == pytest.approx(3 * light.of(0).size, rel=0.05)
    half = [batch for _, batch in clock.runs[len(clock.runs) // 2 :]]
    assert set(half) == {1, 2}, "no shape is over while another has not begun"
    assert clock.now == pytest.approx(4.0, abs=0.05)


def test_least_rounds_are_measured_without_time_and_rivals_take_part_in_some_only(clock):
    subjects = [clock.subject("a", 10.0), clock.subject("rival", 10.0, every=4)]
    once, latencies = clock.measure(subjects, [track(1), track(2, least=9)], 0.0)
    assert [len(item.milliseconds) for item in (once, latencies)] == [1, 9]
    assert (len(latencies.of(0)), len(latencies.of(1))) == (9, 3)
    assert len(latencies.ratios(0, 1)) == 3


SUBJECT = Engine(runtime="onnxruntime", precision="fp32", run=len)


def test_round_counts_by_its_best_run_and_a_subject_by_its_own_runs():
    times = np.array([[[10.0, 30.0], [5.0, 90.0]], [[10.0, 30.0], [np.nan, np.nan]]])
    latencies = Latencies(shape=Shape(batch=1), milliseconds=times)
    assert latencies.ratios(0, 1).tolist() == [2.0]
    assert latencies.of(1).tolist() == [5.0, 90.0]
    first, second = summaries([SUBJECT, SUBJECT], [latencies])
    assert (first.repetitions, second.repetitions, second.average_ms) == (4, 2, 47.5)


def test_summary_has_percentiles_and_rates_and_the_table_a_line_for_every_shape():
    record = summary(SUBJECT, Shape(batch=4, sequence=8), np.arange(1.0, 102.0))
    percentiles = (record.p50_ms, record.p95_ms, record.p99_ms)
    assert (record.average_ms, percentiles) == (51.0, (51.0, 96.0, 100.0))
    assert (record.rows_per_second, record.repetitions) == (78.43, 101)
    shapes = [Shape(batch=1, sequence=8), Shape(batch=4)]
    times = np.full((3, 1, 2), 20.0)
    measured = [Latencies(shape=shape, milliseconds=times) for shape in shapes]
    lines = format_latencies(summaries([SUBJECT], measured)).splitlines()
    assert [" ".join(line.split()) for line in lines] == [
        "runtime precision batch x tokens average ms p50 p95 p99 requests/s rows/s runs",
        "onnxruntime fp32 1 x 8 20.00 20.00 20.00 20.00 50.0 50 6",
        "onnxruntime fp32 4 20.00 20.00 20.00 20.00 50.0 200 6",
    ]
    assert len({len(line) for line in lines}) == 1
