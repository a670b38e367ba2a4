"""Which candidate becomes the engine, and why, in one sentence with its numbers.

A speed-up is compared with the noise that two copies of one engine show. The rounds are paired: in
each, both engines ran within moments of each other. A median of ratios forgets spells of load that
a ratio of medians does not. The noise is where four in five rounds of the two copies lie, and not
their median's interval: on a machine that others use, one copy of an engine stays faster than
another for minutes, and more rounds make an interval narrow around luck (docs/decisions/0008).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx

from engine_build.datasets.dataset import Shape
from engine_build.errors import BudgetMissed
from engine_build.evaluation.accuracy import (
    format_budget,
    format_scores,
    format_verdict,
    shortfall,
    way_out,
)
from engine_build.evaluation.latency import Latencies
from engine_build.evaluation.scores import median_interval
from engine_build.onnx_graph.external_data import weight_bytes
from engine_build.onnx_graph.network_store import data_file
from onboarding.manifest import (
    AccuracyRecord,
    BenchmarkRecord,
    PlanRecord,
    RuntimeRecord,
    SpeedupRecord,
)
from onboarding.values import Precision

FLOAT: tuple[Precision, ...] = ("fp32", "fp16")
LEAST_ROUNDS = 15
"""Fewer rounds give no useful interval; a quiet machine runs more than twice as many."""
NOISE = (0.1, 0.9)
EIGHT_BITS: tuple[Precision, ...] = ("int8", "fp8")
LEAST_GAIN = 1.05
"""Eight bits cost accuracy, so less than 5 % is not worth it.

Two copies of one engine lay up to 3 % apart for a whole measurement, with intervals that excluded
1: where their memory happens to lie is no noise that more rounds would remove.
"""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """An engine that may be published."""

    precision: Precision
    path: Path
    plan: PlanRecord | None = None
    """Of a TensorRT plan: what was read back from it."""


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The engine, and the sentence that the lock keeps."""

    precision: Precision
    sentence: str


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """All that was measured, and the candidate that was chosen by it."""

    chosen: Candidate
    decision: Decision
    accuracy: tuple[AccuracyRecord, ...]
    """The chosen engine's last."""
    benchmark: tuple[BenchmarkRecord, ...]
    speedups: tuple[SpeedupRecord, ...]
    runtimes: tuple[RuntimeRecord, ...]
    left_out: Mapping[Precision, str] = field(default_factory=dict)
    """Why a precision has no engine, or no sound one."""

    @property
    def footprint(self) -> RuntimeRecord:
        """Load time and memory of the chosen engine."""
        return next(record for record in self.runtimes if record.precision == self.chosen.precision)


@dataclass(frozen=True, kw_only=True)
class Findings:
    """The accuracy of every candidate, the plainest first."""

    accuracy: Mapping[Precision, AccuracyRecord]
    broken: Mapping[Precision, str]
    """The fault of each candidate that answers NaN or Inf."""
    refused: Mapping[Precision, str] = field(default_factory=dict)
    """Why a precision was not tried, when the network is the reason."""
    differences: Mapping[Precision, str] = field(default_factory=dict)
    """Where an engine that misses its budget leaves its network, in a sentence."""
    placement: Mapping[Precision, str] = field(default_factory=dict)
    """Which layers of a candidate went back to float because it is faster so."""

    def may_be_chosen(self, precision: Precision) -> bool:
        """Return True for a pass, and for a float32 engine that does not fail."""
        if precision not in self.accuracy:
            return False
        verdict = self.accuracy[precision].verdict
        return verdict == "pass" or (precision == "fp32" and verdict != "fail")

    @property
    def fallback(self) -> Precision | None:
        """The fastest float engine that may be chosen: what `auto` takes instead of eight bits."""
        candidates = (precision for precision in reversed(FLOAT) if self.may_be_chosen(precision))
        return next(candidates, None)

    @property
    def eight_bits(self) -> tuple[Precision, ...]:
        """The candidates of eight bits, INT8 first; FP8 only where the build considered it."""
        known = (self.accuracy, self.broken, self.refused)
        has_fp8 = any("fp8" in precisions for precisions in known)
        return EIGHT_BITS if has_fp8 else ("int8",)


def speedup(
    latencies: Latencies, *, candidate: tuple[int, str], baseline: tuple[int, str], control: int
) -> SpeedupRecord:
    """Return the record of one shape; subjects are (index in the measurement, name)."""
    ratios = latencies.ratios(baseline[0], candidate[0])
    copies = latencies.ratios(baseline[0], control)
    statistics = (np.median(ratios), *median_interval(ratios), *np.quantile(copies, NOISE))
    names = ("ratio", "low", "high", "control_low", "control_high")
    numbers = {name: round(float(value), 4) for name, value in zip(names, statistics, strict=True)}
    return SpeedupRecord(
        candidate=candidate[1],
        baseline=baseline[1],
        batch=latencies.shape.batch,
        sequence=latencies.shape.sequence,
        **numbers,
    )


def required_speedup(record: SpeedupRecord) -> float:
    """Return what the interval's lower end must exceed: the least gain, and the noise."""
    return max(LEAST_GAIN, record.control_high, 1 / record.control_low)


def is_faster(record: SpeedupRecord) -> bool:
    """Return True for a speed-up that noise does not explain."""
    return record.low > required_speedup(record)


def format_speedup(record: SpeedupRecord) -> str:
    """Return the record in one line."""
    shape = Shape(batch=record.batch, sequence=record.sequence)
    return (
        f"{record.ratio:.2f} times as fast as {record.baseline} at {shape} "
        f"(95 % interval {record.low:.2f} to {record.high:.2f}; rounds of two copies of "
        f"{record.baseline}: {record.control_low:.2f} to {record.control_high:.2f})"
    )


def refuse_missed_budget(requested: str, findings: Findings) -> None:
    """Raises BudgetMissed, with the closest result, when no candidate may be chosen."""
    if any(findings.may_be_chosen(precision) for precision in findings.accuracy):
        return
    if not findings.accuracy:
        raise BudgetMissed(next(iter(findings.broken.values())))
    precision, closest = min(findings.accuracy.items(), key=lambda pair: shortfall(pair[1]))
    is_unclear = closest.verdict == "not enough data"
    verb = "cannot be judged" if is_unclear else "misses its accuracy budget"
    difference = findings.differences.get(precision)
    raise BudgetMissed(
        f"precision {requested} {verb}: the closest, {precision}, has {format_scores(closest)}, "
        f"wanted {format_budget(closest)}; {way_out(closest)}."
        f"{'' if difference is None else ' ' + difference}"
    )


def decide(requested: str, findings: Findings, speedups: Sequence[SpeedupRecord]) -> Decision:
    """Choose the requested precision; for `auto`, the fastest of eight bits that is accurate.

    It must be faster than the float engine at the opt shape of every profile.
    """
    if requested != "auto":
        precision = next(iter(findings.accuracy))
        return _decision(precision, f", as asked: {_result(findings, precision)}")
    plain = findings.fallback
    passing = [item for item in findings.eight_bits if findings.may_be_chosen(item)]
    if plain is None:
        chosen = max(passing, key=lambda item: _gain(item, speedups))
        others = [item for item in findings.eight_bits if item != chosen]
        reasons = "".join(f"; {_against(item, findings, speedups)}" for item in others)
        result = _result(findings, chosen)
        return _decision(chosen, f": {result}; no float engine is within the budget{reasons}")
    measured = [record for record in speedups if record.baseline == plain]
    tried = {record.candidate for record in measured}
    slow = {record.candidate for record in measured if not is_faster(record)}
    faster = [item for item in passing if item in tried - slow]
    chosen = max(faster, key=lambda item: _gain(item, measured), default=plain)
    reasons = "; ".join(_against(item, findings, measured) for item in findings.eight_bits)
    fp16 = "" if plain == "fp16" else _reason_against_fp16(findings)
    return _decision(chosen, f": {reasons}{fp16}")


def keep_given(precision: Precision, findings: Findings, reference: str | None) -> Decision:
    """Choose the precision of the source's own Q/DQ nodes, which leave no choice."""
    against = "" if reference is None else f", against {reference}"
    kept = "by the source's own Q/DQ nodes, quantized no further"
    return _decision(precision, f", {kept}: {_result(findings, precision)}{against}")


def _decision(precision: Precision, reason: str) -> Decision:
    return Decision(precision=precision, sentence=f"{precision}{reason}.")


def _gain(precision: Precision, speedups: Sequence[SpeedupRecord]) -> float:
    """Return the product of a candidate's speed-ups at all opt shapes."""
    return math.prod(record.ratio for record in speedups if record.candidate == precision)


def _against(precision: Precision, findings: Findings, speedups: Sequence[SpeedupRecord]) -> str:
    """Say what speaks against a candidate of eight bits, or how fast and accurate it is."""
    if precision in findings.broken:
        return findings.broken[precision].rstrip(".")
    if precision not in findings.accuracy:
        reason = findings.refused.get(precision, "the model file gives no calibration samples")
        return f"{precision} was not tried, since {reason.rstrip('.')}"
    if not findings.may_be_chosen(precision):
        return f"{precision} has {_result(findings, precision)}"
    measured = [record for record in speedups if record.candidate == precision]
    slow = [record for record in measured if not is_faster(record)]
    gains = "; ".join(map(format_speedup, slow or measured)) or "not measured"
    is_slow = bool(slow) or not measured
    verb = "is not faster by more than noise and 5 %:" if is_slow else "is"
    return f"{precision} {verb} {gains}, and has {_result(findings, precision)}"


def _reason_against_fp16(findings: Findings) -> str:
    if "fp16" in findings.refused:
        return f"; fp16 was not tried, since {findings.refused['fp16'].rstrip('.')}"
    if "fp16" in findings.broken:
        return f"; {findings.broken['fp16'].rstrip('.')}"
    return f"; fp16 has {_result(findings, 'fp16')}" if "fp16" in findings.accuracy else ""


def _result(findings: Findings, precision: Precision) -> str:
    record = findings.accuracy[precision]
    placement = findings.placement.get(precision)
    placed = "" if placement is None else f" ({placement})"
    return f"{format_scores(record)}, {format_verdict(record)}{placed}"


PRECISIONS: tuple[Precision, ...] = ("fp32", "fp16", "int8", "fp8")
NETWORK_SUFFIX = ".onnx"


def with_sizes(record: RuntimeRecord, path: Path) -> RuntimeRecord:
    """Return a record with the bytes of an engine's files, and of a network's weights."""
    beside, weights = data_file(path), None
    if path.suffix == NETWORK_SUFFIX:
        weights = weight_bytes(onnx.load(path, load_external_data=False))
    files = (path,) if beside is None else (path, beside)
    size = sum(file.stat().st_size for file in files)
    return record.model_copy(update={"engine_bytes": size, "weights_bytes": weights})


def left_out(
    requested: str, findings: Findings, *, is_cpu: bool, is_given: bool
) -> dict[Precision, str]:
    """Return why each precision without a sound engine has none.

    `is_given`: the source's own Q/DQ nodes decide.
    """
    reasons: dict[Precision, str] = dict.fromkeys(PRECISIONS, "no candidate of this target")
    if is_given:
        reasons = dict.fromkeys(PRECISIONS, "the source's own Q/DQ nodes leave no choice")
    elif requested != "auto":
        reasons = dict.fromkeys(PRECISIONS, f"the model file asks for {requested}")
    else:
        reasons["int8"] = "the model file gives no calibration samples"
        if is_cpu:
            reasons["fp16"] = "ONNX Runtime on a CPU gains nothing by it"
        else:
            reasons["fp32"] = "auto takes it only where FP16 misses the budget"
    reasons |= findings.refused
    reasons |= findings.broken
    return {
        precision: reason
        for precision, reason in reasons.items()
        if precision not in findings.accuracy
    }
