"""Which candidate becomes the engine, and why, in one sentence with its numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine_build.benchmark import CONTROL
from engine_build.errors import BudgetMissed
from engine_build.feed import Shape
from onboarding.manifest import AccuracyRecord, BenchmarkRecord
from onboarding.values import Precision


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The engine, and the sentence that the lock keeps."""

    precision: Precision
    sentence: str


def refuse_missed_budget(requested: str, accuracy: Mapping[Precision, AccuracyRecord]) -> None:
    """Ends the build when nothing that may be chosen is accurate enough. Raises BudgetMissed with the closest result."""
    if any(_may_be_chosen(precision, record) for precision, record in accuracy.items()):
        return
    precision, closest = max(accuracy.items(), key=lambda item: item[1].mean)
    raise BudgetMissed(
        f"precision {requested} misses its accuracy budget: the closest, {precision}, has {numbers(closest)}, wanted "
        f"{budget(closest)}; raise the budget, ask for another precision, or give better calibration samples."
    )


def decision(
    requested: str,
    accuracy: Mapping[Precision, AccuracyRecord],
    benchmark: Sequence[BenchmarkRecord],
    *,
    runtime: str,
    opt_shape: Shape,
) -> Decision:
    """The requested precision; for auto, int8 if it is accurate enough and faster than noise at the opt shape."""
    plain = next(iter(accuracy))
    if requested != "auto":
        record = accuracy[plain]
        return Decision(precision=plain, sentence=f"{plain}, as asked: {numbers(record)}, {_judged(record)}.")
    candidate = accuracy.get("int8")
    if candidate is None:
        why = "int8 was not tried, since the model file gives no calibration samples"
        return Decision(precision=plain, sentence=f"{plain}: {why}.")
    if not _may_be_chosen("int8", candidate):
        return Decision(precision=plain, sentence=f"{plain}: int8 has {numbers(candidate)}, {_judged(candidate)}.")
    return _faster(plain, candidate, {each.precision: each for each in _at(benchmark, runtime, opt_shape)}, opt_shape)


def numbers(record: AccuracyRecord) -> str:
    """An accuracy in a few words."""
    return f"mean cosine {record.mean:.5f} and worst {record.worst:.5f} on {record.samples} samples"


def budget(record: AccuracyRecord) -> str:
    """A budget in a few words."""
    return f"mean {record.budget_mean:g}" + ("" if record.budget_worst is None else f" and worst {record.budget_worst:g}")


def _may_be_chosen(precision: Precision, record: AccuracyRecord) -> bool:
    # The export was compared with the source already, so few samples are no reason against the float engine.
    return record.verdict == "pass" or (record.verdict == "not enough data" and precision == "fp32")


def _judged(record: AccuracyRecord) -> str:
    if record.verdict == "not enough data":
        return "not enough data to judge it"
    return f"{'within' if record.verdict == 'pass' else 'outside'} the budget of {budget(record)}"


def _at(benchmark: Sequence[BenchmarkRecord], runtime: str, shape: Shape) -> list[BenchmarkRecord]:
    return [each for each in benchmark if each.runtime == runtime and Shape(batch=each.batch, sequence=each.sequence) == shape]


def _faster(plain: Precision, candidate: AccuracyRecord, measured: Mapping[str, BenchmarkRecord], shape: Shape) -> Decision:
    before, after = measured[plain].p50_ms, measured["int8"].p50_ms
    noise = measured[plain + CONTROL].p50_ms / before
    times, needed = before / after, max(noise, 1 / noise)
    chosen: Precision = "int8" if times > needed else plain
    speed = f"{times:.2f} times as fast as {plain} at {shape} ({after:.1f} ms against {before:.1f} ms, median)"
    verb = "int8 is" if chosen == "int8" else "int8 is only"
    noise_told = f"a duplicate of {plain} differs {needed:.2f} times"
    sentence = f"{chosen}: {verb} {speed}, and {noise_told}; int8 has {numbers(candidate)}, {_judged(candidate)}."
    return Decision(precision=chosen, sentence=sentence)
