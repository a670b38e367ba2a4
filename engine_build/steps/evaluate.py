"""Verify, benchmark and choose among the candidates of a build."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from engine_build.context import BuildContext
from engine_build.evaluation.decision import (
    Candidate,
    Evaluation,
    Verified,
    decide,
    refuse_missed_budget,
)
from engine_build.evaluation.runtimes import Load, load_engine
from engine_build.onnx_graph.network_store import Network
from engine_build.steps.benchmark import benchmark
from engine_build.steps.compile import fallback
from engine_build.steps.prepare import Prepared, prepared_parts
from engine_build.steps.step import BuildState, Step
from engine_build.steps.verify import Verification, verify_intent

Fallback = Callable[[BuildContext, Mapping[str, Network]], Candidate | None]


def verify_candidates(
    context: BuildContext,
    prepared: Prepared,
    candidates: Sequence[Candidate],
    *,
    load: Load = load_engine,
    compile_fallback: Fallback = fallback,
) -> Verified:
    """Hold every candidate's answers against the reference. Raises BudgetMissed.

    `compile_fallback` makes the float32 engine that `auto` takes where FP16 misses the budget.
    """
    verification = Verification(context, prepared, load)
    with context.log.step("verify", verify_intent(context, candidates)):
        network_records = verification.verify_network()
        for candidate in candidates:
            verification.verify(candidate)
    candidates = [*candidates, *_fallback(context, prepared, verification, compile_fallback)]
    findings = verification.findings
    refuse_missed_budget(context.request.model.engine.precision, findings)
    # The engine that would be taken otherwise comes first: it is the baseline.
    measurable = sorted(
        (candidate for candidate in candidates if candidate.precision in findings.accuracy),
        key=lambda candidate: candidate.precision != findings.fallback,
    )
    return Verified(
        findings=findings, network_records=network_records, candidates=tuple(measurable)
    )


def choose_candidate(
    context: BuildContext, prepared: Prepared, verified: Verified, *, load: Load = load_engine
) -> Evaluation:
    """Time every verified candidate, and choose one."""
    requested, findings = context.request.model.engine.precision, verified.findings
    measurable = verified.candidates
    decides = requested == "auto" and findings.may_be_chosen("int8")
    measured = benchmark(context, prepared, measurable, decides=decides, load=load)
    decision = decide(requested, findings, measured.speedups)
    context.log.line(f"decision: {decision.sentence}")
    others = [
        record for precision, record in findings.accuracy.items() if precision != decision.precision
    ]
    return Evaluation(
        chosen=next(item for item in measurable if item.precision == decision.precision),
        decision=decision,
        accuracy=(*verified.network_records, *others, findings.accuracy[decision.precision]),
        benchmark=measured.benchmark,
        speedups=measured.speedups,
        runtimes=measured.runtimes,
    )


def _fallback(
    context: BuildContext,
    prepared: Prepared,
    verification: Verification,
    compile_fallback: Fallback,
) -> list[Candidate]:
    """Return the float32 engine, where `auto` has no other float engine to take."""
    if (
        context.request.model.engine.precision != "auto"
        or verification.findings.fallback is not None
    ):
        return []
    candidate = compile_fallback(context, prepared.networks)
    if candidate is None:
        return []
    with context.log.step("verify again", verify_intent(context, [candidate])):
        verification.verify(candidate)
    return [candidate]


def run_verification(context: BuildContext, state: BuildState) -> None:
    """Verify every candidate. Raises BudgetMissed before anything is timed."""
    state.verified = verify_candidates(context, prepared_parts(state), state.candidates)


def run_benchmark(context: BuildContext, state: BuildState) -> None:
    """Time the candidates, and choose one."""
    state.evaluation = choose_candidate(context, prepared_parts(state), state.verified)


VERIFY = Step(name="verify", run=run_verification)
BENCHMARK = Step(name="benchmark", run=run_benchmark)
