"""The verify step: every engine's answers to the validation samples against the source model's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from engine_build.context import BuildContext
from engine_build.datasets.feed import Array
from engine_build.evaluation.accuracy import (
    BrokenAnswers,
    Standard,
    accuracy,
    refuse_useless_labels,
    told,
    worst_place,
)
from engine_build.evaluation.answers import rows_by_length, rows_in_order
from engine_build.evaluation.decision import Findings
from engine_build.evaluation.runtimes import Opening, Running, RuntimeName, opened
from engine_build.sources.classes import class_numbers
from engine_build.steps.compile import Candidate
from engine_build.steps.prepare import REFERENCE_BATCH, Prepared
from onboarding.manifest import AccuracyRecord
from onboarding.values import Precision

QDQ = "int8 Q/DQ network"


class Verification:
    """Judges the candidates of one build, the first ones and any that come later."""

    def __init__(
        self, context: BuildContext, prepared: Prepared, opening: Opening = opened
    ) -> None:
        self._context = context
        self._opening = opening
        self._prepared = prepared
        self._standard = standard(context, prepared)
        self._accuracy: dict[Precision, AccuracyRecord] = {}
        self._broken: dict[Precision, str] = {}

    @property
    def findings(self) -> Findings:
        """What was found so far."""
        return Findings(
            accuracy=self._accuracy, broken=self._broken, without_int8=self._prepared.without_int8
        )

    def judge_network(self) -> tuple[AccuracyRecord, ...]:
        """The Q/DQ network itself, in ONNX Runtime: what a plan of it can be at best.

        Raises BrokenAnswers.
        """
        network = self._prepared.networks.get("int8")
        return (
            () if network is None else (self._record(QDQ, self._rows("onnxruntime", network.path)),)
        )

    def judge(self, candidate: Candidate) -> None:
        """Raises BrokenAnswers for an engine that was asked for; `auto` can do without it, and only
        does not choose it.
        """
        as_served = self._context.request.is_cpu and candidate.precision == "int8"
        found = self._rows(self._context.request.runtime.name, candidate.path, as_served=as_served)
        try:
            self._accuracy[candidate.precision] = self._record(
                f"{candidate.precision} engine", found
            )
        except BrokenAnswers as error:
            if self._context.request.model.engine.precision != "auto":
                raise
            self._broken[candidate.precision] = str(error)
            self._context.log.line(f"  {error}")

    def _record(self, subject: str, found: Array) -> AccuracyRecord:
        record = accuracy(subject, found, self._standard)
        self._context.log.line(f"  {told(record)}")
        if record.verdict != "pass":
            place = worst_place(found, self._standard)
            sample = self._context.request.validation.values[place]
            text = f", {sample[:80]!r}" if isinstance(sample, str) else ""
            self._context.log.line(f"    its worst is sample {place + 1}{text}")
        return record

    def _rows(self, runtime: RuntimeName, path: Path, *, as_served: bool = False) -> Array:
        """Every validation sample's row.

        `as_served`: in the order given and at the opt batch, since a dynamically quantized engine's
        answer depends on the rest
        of its batch. Otherwise by length, which is faster and gives the same rows.
        """
        request, encoder = self._context.request, self._prepared.encoder
        samples, batch = (
            request.validation.values,
            request.opt_shape.batch if as_served else REFERENCE_BATCH,
        )
        with _running(self._opening, runtime, path) as engine:
            told = self._context.log.counting(engine.rows, -(-len(samples) // batch), "batches")
            return (rows_in_order if as_served else rows_by_length)(told, encoder, samples, batch)


def standard(context: BuildContext, prepared: Prepared) -> Standard:
    """What a build's answers are held against.

    Raises InputRefused and SourceFault for labels that judge nothing.
    """
    spec, labels = context.request.model.accuracy, context.request.validation.labels
    numbers = None
    if spec.metric == "accuracy" and labels is not None:
        numbers = class_numbers(labels, prepared.networks["float"], spec.dataset)
        refuse_useless_labels(prepared.reference, numbers, spec.dataset)
    return Standard(
        reference=prepared.reference, metric=spec.metric, budget=spec.budget, labels=numbers
    )


def intent(context: BuildContext, candidates: Sequence[Candidate]) -> str:
    """What the step will do."""
    engines = ", ".join(candidate.precision for candidate in candidates)
    return f"{engines} against the source model, {len(context.request.validation)} samples that calibration never saw"


@contextmanager
def _running(opening: Opening, runtime: RuntimeName, path: Path) -> Iterator[Running]:
    """An engine that gives its memory back."""
    engine = opening(runtime, path, as_served=False)
    try:
        yield engine
    finally:
        close(engine)


def close(engine: Running) -> None:
    """Gives an engine's memory back, where its runtime does not do so by itself."""
    give_back = getattr(engine, "close", None)
    if give_back is not None:
        give_back()
