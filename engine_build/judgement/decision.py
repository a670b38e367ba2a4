"""Which candidate becomes the engine, and why, in one sentence with its numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine_build.errors import BudgetMissed
from engine_build.judgement import speedup
from engine_build.judgement.words import budget, judged, numbers, way_out
from onboarding.manifest import AccuracyRecord, SpeedupRecord
from onboarding.values import Precision

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
    slow = [each for each in against if not speedup.is_faster(each)]
    chosen: Precision = plain if slow or not against else "int8"
    told = "; ".join(speedup.told(each) for each in (slow or against)) or "not measured"
    verb = "int8 is" if chosen == "int8" else "int8 is not faster by more than noise and 5 %:"
    sentence = (
        f"{chosen}: {verb} {told}, and has {_numbers(found, 'int8')}{_why_not_fp16(plain, found)}."
    )
    return Decision(precision=chosen, sentence=sentence)


def _numbers(found: Findings, precision: Precision) -> str:
    record = found.accuracy[precision]
    return f"{numbers(record)}, {judged(record)}"
