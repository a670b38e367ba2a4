"""The verify step: every engine's answers to the validation samples against the source model's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from engine_build.datasets.dataset import Array, Feed, rows_of_samples
from engine_build.errors import NetworkRefused, SourceFault
from engine_build.evaluation.accuracy import (
    BrokenAnswers,
    Comparison,
    Standard,
    compare,
    format_record,
    refuse_useless_labels,
    standard_of,
)
from engine_build.evaluation.decision import Candidate, Findings, refuse_missed_budget
from engine_build.evaluation.runtimes import Load, RuntimeName, close, load_engine
from engine_build.onnx_graph.network_store import Network
from engine_build.quantization.given_qdq import given_precision
from engine_build.request import BuildContext
from engine_build.steps.compile import difference, fallback
from engine_build.steps.reference import REFERENCE_BATCH
from engine_build.steps.step import BuildState
from engine_build.tensorrt.bisection import SAMPLES, Difference
from onboarding.manifest import AccuracyRecord
from onboarding.values import Precision

Fallback = Callable[[BuildContext, Mapping[str, Network]], Candidate | None]
Locate = Callable[[BuildContext, Mapping[str, Network], Candidate, Feed], Difference]


def verify_candidates(
    context: BuildContext,
    state: BuildState,
    *,
    load: Load = load_engine,
    compile_fallback: Fallback = fallback,
    locate: Locate = difference,
) -> None:
    """Hold every candidate's answers against the reference. Raises BudgetMissed.

    `compile_fallback` makes the float32 engine that `auto` takes where FP16 misses the budget.
    `locate` finds the first layer of a plan that differs from its network, where the plan answers
    NaN or Inf or misses its budget.
    """
    verification = _Verification(context, state, load, locate)
    candidates = list(state.candidates)
    with context.log.step("verify", _intent(context, candidates)):
        state.network_records = verification.verify_network()
        for candidate in candidates:
            verification.verify(candidate)
    if state.may_leave_out and verification.findings.fallback is None:
        float32 = compile_fallback(context, state.networks)
        if float32 is not None:
            with context.log.step("verify again", _intent(context, [float32])):
                verification.verify(float32)
            candidates.append(float32)
    findings = state.findings = verification.findings
    refuse_missed_budget(context.request.model.engine.precision, findings)
    measurable = [item for item in candidates if item.precision in findings.accuracy]
    # The engine that would be taken otherwise comes first: it is the baseline.
    measurable.sort(key=lambda candidate: candidate.precision != findings.fallback)
    state.candidates = tuple(measurable)


def standard(context: BuildContext, state: BuildState) -> Standard:
    """Return what a build's answers are compared with.

    Raises InputRefused and SourceFault for labels that decide nothing.
    """
    assert state.reference is not None
    request, network = context.request, state.networks["float"]
    spec, samples = request.model.accuracy, request.validation
    result = standard_of(spec, network, state.encoder, samples, state.reference, spec.dataset)
    refuse_useless_labels(result, spec.dataset)
    return result


class _Verification:
    """The accuracy of one build's candidates, the first ones and any that come later."""

    def __init__(
        self, context: BuildContext, state: BuildState, load: Load, locate: Locate
    ) -> None:
        self._context = context
        self._state = state
        self._load = load
        self._locate = locate
        self._standard = standard(context, state)
        self._accuracy: dict[Precision, AccuracyRecord] = {}
        self._broken: dict[Precision, str] = {}
        self._differences: dict[Precision, str] = {}
        self.findings = Findings(
            accuracy=self._accuracy,
            broken=self._broken,
            refused=state.refused,
            placement=state.placement,
            differences=self._differences,
        )

    def verify_network(self) -> tuple[AccuracyRecord, ...]:
        """Verify the Q/DQ network itself: a plan of it is no better. Raises BrokenAnswers."""
        given = given_precision(self._state.networks)
        # The source network, whatever it computes in, is the reference of its own nodes.
        if given is not None and self._context.request.model.accuracy.reference is None:
            return ()
        return tuple(
            self._compare(f"{name} Q/DQ network", self._rows("onnxruntime", network.path)).record
            for name, network in self._state.networks.items()
            if name != "float"
        )

    def verify(self, candidate: Candidate) -> None:
        """Verify one engine. Raises BrokenAnswers unless `auto` can choose another."""
        request, precision = self._context.request, candidate.precision
        dynamic = precision == "int8" and given_precision(self._state.networks) is None
        as_served = request.is_cpu and dynamic
        rows = self._rows(request.library, candidate.path, as_served=as_served)
        try:
            comparison = self._compare(f"{precision} engine", rows)
        except BrokenAnswers as error:
            broken = np.flatnonzero(~np.isfinite(rows).all(axis=tuple(range(1, rows.ndim))))
            message = f"{error} {self._difference(candidate, broken.tolist())}".rstrip()
            if not self._state.may_leave_out:
                raise BrokenAnswers(message) from error
            self._broken[precision] = message
            self._context.log.line(f"  {message}")
            return
        self._accuracy[precision] = comparison.record
        if comparison.record.verdict == "fail":
            sentence = self._difference(candidate, [comparison.worst])
            if sentence:
                self._differences[precision] = sentence
                self._context.log.line(f"  {sentence}")

    def _difference(self, candidate: Candidate, samples: Sequence[int]) -> str:
        """Return where a plan leaves its network on some samples; "" for what is no plan.

        ONNX Runtime has no operators of plugins.
        """
        if candidate.plan is None or self._context.request.plugins:
            return ""
        context, encoder = self._context, self._state.encoder
        samples = tuple(dict.fromkeys((*samples, *range(SAMPLES))))[:SAMPLES]
        values = [context.request.validation.values[index] for index in samples]
        feed = encoder.feed(values)
        try:
            return str(self._locate(context, self._state.networks, candidate, feed))
        except (NetworkRefused, SourceFault) as error:
            return f"The first layer that differs was not found: {error}"

    def _compare(self, subject: str, rows: Array) -> Comparison:
        comparison = compare(subject, rows, self._standard)
        for line in comparison.outputs or (comparison.record,):
            self._context.log.line(f"  {format_record(line)}")
        if comparison.record.verdict != "pass":
            index = comparison.worst
            sample = self._context.request.validation.values[index]
            text = ""
            if isinstance(sample, str | tuple):
                text = f", {' / '.join((sample,) if isinstance(sample, str) else sample)[:80]!r}"
            elif isinstance(sample, bytes):
                text = f", {self._context.request.validation.names[index]}"
            self._context.log.line(f"    its worst is sample {index + 1}{text}")
        return comparison

    def _rows(self, runtime: RuntimeName, path: Path, *, as_served: bool = False) -> Array:
        """Return every validation sample's row.

        `as_served`: in the order given and at the opt batch, since a dynamically quantized engine's
        answer depends on the rest of its batch. Otherwise by length, which is faster and gives the
        same rows.
        """
        request, log = self._context.request, self._context.log
        samples = request.validation.values
        batch = request.opt_shape.batch if as_served else REFERENCE_BATCH
        with ExitStack() as stack:
            engine = self._load(runtime, path, as_served=False)
            stack.callback(close, engine)
            answer = log.count_calls(engine.rows, -(-len(samples) // batch))
            encoder = self._state.encoder
            return rows_of_samples(answer, encoder, samples, batch, in_order=as_served)


def _intent(context: BuildContext, candidates: Sequence[Candidate]) -> str:
    engines = ", ".join(candidate.precision for candidate in candidates)
    count = len(context.request.validation)
    return f"{engines} against the source model, {count} samples that calibration never saw"
