"""How much faster one engine is than another, against the noise that two copies of one engine show.

The rounds are paired: in each, both engines ran within moments of each other. A median of ratios
forgets spells of load that a
ratio of medians does not. The noise is where four in five rounds of the two copies lie, and not
their median's interval: on a
machine that others use, one copy of an engine stays faster than another for minutes, and more
rounds make an interval narrow
around luck (docs/decisions/0008).

Which candidate becomes the engine, and why, in one sentence with its numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from engine_build.datasets.feed import Shape
from engine_build.errors import BudgetMissed
from engine_build.evaluation.accuracy import budget, judged, numbers, way_out
from engine_build.evaluation.latency import Latencies
from engine_build.evaluation.scores import median_interval
from onboarding.manifest import AccuracyRecord, SpeedupRecord
from onboarding.values import Precision

LEAST_ROUNDS = 15
"""Fewer rounds give no interval that is worth the name; on a quiet machine there are twice as many
and more.
"""
NOISE = (0.1, 0.9)
LEAST_GAIN = 1.05
"""INT8 costs accuracy, so less than 5 % is not worth it. Two copies of one engine lay up to 3 %
apart for a whole measurement,
with intervals that excluded 1: where their memory happens to lie is no noise that more rounds would
remove."""


def speedup(
    measured: Latencies, *, candidate: tuple[int, str], baseline: tuple[int, str], control: int
) -> SpeedupRecord:
    """The record of one shape; subjects are given by their place in the measurement and their name."""
    ratios = measured.ratios(baseline[0], candidate[0])
    low, high = median_interval(ratios)
    copies = measured.ratios(baseline[0], control)
    control_low, control_high = (round(float(np.quantile(copies, part)), 4) for part in NOISE)
    return SpeedupRecord(
        candidate=candidate[1],
        baseline=baseline[1],
        batch=measured.shape.batch,
        sequence=measured.shape.sequence,
        ratio=round(float(np.median(ratios)), 4),
        low=round(low, 4),
        high=round(high, 4),
        control_low=control_low,
        control_high=control_high,
    )


def needed(record: SpeedupRecord) -> float:
    """What the interval's lower end must exceed: the least gain, and the noise to either side."""
    return max(LEAST_GAIN, record.control_high, 1 / record.control_low)


def is_faster(record: SpeedupRecord) -> bool:
    """Faster by more than noise explains."""
    return record.low > needed(record)


def describe_speedup(record: SpeedupRecord) -> str:
    """The record in a few words."""
    shape = Shape(batch=record.batch, sequence=record.sequence)
    return (
        f"{record.ratio:.2f} times as fast as {record.baseline} at {shape} (95 % interval {record.low:.2f} to {record.high:.2f}; "
        f"rounds of two copies of {record.baseline}: {record.control_low:.2f} to {record.control_high:.2f})"
    )


FLOAT: tuple[Precision, ...] = ("fp32", "fp16")


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The engine, and the sentence that the lock keeps."""

    precision: Precision
    sentence: str


@dataclass(frozen=True, kw_only=True)
class Findings:
    """How every candidate was judged, the plainest first."""

    accuracy: Mapping[Precision, AccuracyRecord]
    broken: Mapping[Precision, str]
    """What is wrong with candidates that answer NaN or Inf."""
    without_int8: str | None = None
    """Why int8 was not tried, when the network is the reason."""

    def may_be_chosen(self, precision: Precision) -> bool:
        """A pass; of a float32 engine, no fail: its network was compared with the source when it
        was exported.
        """
        record = self.accuracy.get(precision)
        return record is not None and (
            record.verdict == "pass" or (precision == "fp32" and record.verdict != "fail")
        )

    @property
    def fallback(self) -> Precision | None:
        """What `auto` takes when it does not take int8: the fastest float engine that may be
        chosen.
        """
        return next((each for each in reversed(FLOAT) if self.may_be_chosen(each)), None)


def refuse_missed_budget(requested: str, found: Findings) -> None:
    """Ends the build when nothing that may be chosen is accurate enough.

    Raises BudgetMissed with the closest result.
    """
    if any(found.may_be_chosen(precision) for precision in found.accuracy):
        return
    if not found.accuracy:
        raise BudgetMissed(next(iter(found.broken.values())))
    precision, closest = min(found.accuracy.items(), key=lambda item: shortfall(item[1]))
    verb = (
        "cannot be judged" if closest.verdict == "not enough data" else "misses its accuracy budget"
    )
    raise BudgetMissed(
        f"precision {requested} {verb}: the closest, {precision}, has {numbers(closest)}, wanted {budget(closest)}; "
        f"{way_out(closest)}."
    )


def shortfall(record: AccuracyRecord) -> float:
    """How far a result lies below its budget; negative within it."""
    mean = record.budget_mean - record.mean
    return mean if record.budget_worst is None else max(mean, record.budget_worst - record.worst)


def decision(requested: str, found: Findings, speedups: Sequence[SpeedupRecord]) -> Decision:
    """The requested precision; for auto, int8 if it is accurate enough and faster at every shape
    that profiles are tuned for.
    """
    if requested != "auto":
        precision, record = next(iter(found.accuracy.items()))
        return Decision(
            precision=precision,
            sentence=f"{precision}, as asked: {numbers(record)}, {judged(record)}.",
        )
    plain = found.fallback
    why_not = _why_not_int8(found)
    if plain is None:
        return Decision(
            precision="int8",
            sentence=f"int8: {_numbers(found, 'int8')}; no float engine is within the budget.",
        )
    if why_not is not None:
        return Decision(
            precision=plain, sentence=f"{plain}: {why_not}{_why_not_fp16(plain, found)}."
        )
    return _faster(plain, found, speedups)


def _why_not_int8(found: Findings) -> str | None:
    if "int8" in found.broken:
        return found.broken["int8"].rstrip(".")
    if "int8" not in found.accuracy:
        why = (
            "the model file gives no calibration samples"
            if found.without_int8 is None
            else found.without_int8.rstrip(".")
        )
        return f"int8 was not tried, since {why}"
    return None if found.may_be_chosen("int8") else f"int8 has {_numbers(found, 'int8')}"


def _why_not_fp16(plain: Precision, found: Findings) -> str:
    if plain == "fp16" or not {"fp16"} & {*found.accuracy, *found.broken}:
        return ""
    return (
        f"; {found.broken['fp16'].rstrip('.')}"
        if "fp16" in found.broken
        else f"; fp16 has {_numbers(found, 'fp16')}"
    )


def _faster(plain: Precision, found: Findings, speedups: Sequence[SpeedupRecord]) -> Decision:
    against = [each for each in speedups if (each.candidate, each.baseline) == ("int8", plain)]
    slow = [each for each in against if not is_faster(each)]
    chosen: Precision = plain if slow or not against else "int8"
    told = "; ".join(describe_speedup(each) for each in (slow or against)) or "not measured"
    verb = "int8 is" if chosen == "int8" else "int8 is not faster by more than noise and 5 %:"
    sentence = (
        f"{chosen}: {verb} {told}, and has {_numbers(found, 'int8')}{_why_not_fp16(plain, found)}."
    )
    return Decision(precision=chosen, sentence=sentence)


def _numbers(found: Findings, precision: Precision) -> str:
    record = found.accuracy[precision]
    return f"{numbers(record)}, {judged(record)}"
