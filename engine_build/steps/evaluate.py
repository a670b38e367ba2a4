"""The steps that judge: verify, benchmark, decide."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from engine_build.context import BuildContext
from engine_build.evaluation.decision import Decision, decision, refuse_missed_budget
from engine_build.evaluation.runtimes import Opening, opened
from engine_build.onnx_graph.network_store import Network
from engine_build.steps.benchmark import measured
from engine_build.steps.compile import Candidate, fallback
from engine_build.steps.prepare import Prepared
from engine_build.steps.verify import Verification, intent
from onboarding.manifest import AccuracyRecord, BenchmarkRecord, RuntimeRecord, SpeedupRecord

Fallback = Callable[[BuildContext, Mapping[str, Network]], Candidate | None]


@dataclass(frozen=True, kw_only=True)
class Judged:
    """What was measured, and the candidate that it speaks for."""

    chosen: Candidate
    decision: Decision
    accuracy: tuple[AccuracyRecord, ...]
    """The chosen engine's last."""
    benchmark: tuple[BenchmarkRecord, ...]
    speedups: tuple[SpeedupRecord, ...]
    runtimes: tuple[RuntimeRecord, ...]

    @property
    def held(self) -> RuntimeRecord:
        """What it takes to hold the chosen engine."""
        return next(each for each in self.runtimes if each.precision == self.chosen.precision)


def judge(
    context: BuildContext,
    prepared: Prepared,
    candidates: Sequence[Candidate],
    *,
    opening: Opening = opened,
    compiling: Fallback = fallback,
) -> Judged:
    """Measures every candidate and chooses. Raises BudgetMissed before anything is timed.

    `compiling` makes the float32 engine that `auto` takes where FP16 misses the budget.
    """
    requested = context.request.model.engine.precision
    verification = Verification(context, prepared, opening)
    with context.log.step("verify", intent(context, candidates)):
        seen = verification.judge_network()
        for candidate in candidates:
            verification.judge(candidate)
    everyone = [*candidates, *_further(context, prepared, verification, compiling)]
    found = verification.findings
    refuse_missed_budget(requested, found)
    # The engine that would be taken otherwise comes first: it is the baseline.
    judged = [each for each in everyone if each.precision in found.accuracy]
    able = sorted(judged, key=lambda each: each.precision != found.fallback)
    decides = requested == "auto" and found.may_be_chosen("int8")
    measurement = measured(context, prepared, able, decides=decides, opening=opening)
    chosen = decision(requested, found, measurement.speedups)
    context.log.line(f"decision: {chosen.sentence}")
    others = [
        record for precision, record in found.accuracy.items() if precision != chosen.precision
    ]
    return Judged(
        chosen=next(each for each in able if each.precision == chosen.precision),
        decision=chosen,
        accuracy=(*seen, *others, found.accuracy[chosen.precision]),
        benchmark=measurement.benchmark,
        speedups=measurement.speedups,
        runtimes=measurement.runtimes,
    )


def _further(
    context: BuildContext, prepared: Prepared, verification: Verification, compiling: Fallback
) -> list[Candidate]:
    """The float32 engine, where `auto` has no other float engine to take."""
    if (
        context.request.model.engine.precision != "auto"
        or verification.findings.fallback is not None
    ):
        return []
    candidate = compiling(context, prepared.networks)
    if candidate is None:
        return []
    with context.log.step("verify again", intent(context, [candidate])):
        verification.judge(candidate)
    return [candidate]
