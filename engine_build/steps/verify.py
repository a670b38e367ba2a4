"""The verify step: every engine's answers to the validation samples against the source model's."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from engine_build.context import BuildContext
from engine_build.datasets.dataset import Array
from engine_build.evaluation.accuracy import (
    BrokenAnswers,
    Standard,
    accuracy,
    format_record,
    output_sizes,
    refuse_useless_labels,
    worst_sample,
)
from engine_build.evaluation.answers import rows_by_length, rows_in_order
from engine_build.evaluation.decision import Candidate, Findings
from engine_build.evaluation.runtimes import Load, RuntimeName, close, load_engine
from engine_build.onnx_graph.network_store import class_indices
from engine_build.steps.prepare import Prepared
from engine_build.steps.reference import REFERENCE_BATCH
from onboarding.manifest import AccuracyRecord
from onboarding.values import Precision

QDQ = "int8 Q/DQ network"


class Verification:
    """The accuracy of one build's candidates, the first ones and any that come later."""

    def __init__(self, context: BuildContext, prepared: Prepared, load: Load = load_engine) -> None:
        self._context = context
        self._load = load
        self._prepared = prepared
        self._standard = standard(context, prepared)
        self._accuracy: dict[Precision, AccuracyRecord] = {}
        self._broken: dict[Precision, str] = {}

    @property
    def findings(self) -> Findings:
        """All results so far."""
        without_int8 = self._prepared.without_int8
        if without_int8 is None and "int8" in self._prepared.networks:
            without_int8 = "ONNX Runtime cannot quantize the network dynamically; the log says why"
        return Findings(accuracy=self._accuracy, broken=self._broken, without_int8=without_int8)

    def verify_network(self) -> tuple[AccuracyRecord, ...]:
        """Verify the Q/DQ network itself, in ONNX Runtime: a plan of it is no better.

        Raises BrokenAnswers.
        """
        network = self._prepared.networks.get("int8")
        if network is None:
            return ()
        return (self._record(QDQ, self._rows("onnxruntime", network.path)),)

    def verify(self, candidate: Candidate) -> None:
        """Verify one engine. Raises BrokenAnswers unless `auto` can choose another."""
        request, precision = self._context.request, candidate.precision
        as_served = request.is_cpu and precision == "int8"
        rows = self._rows(request.runtime.name, candidate.path, as_served=as_served)
        try:
            self._accuracy[precision] = self._record(f"{precision} engine", rows)
        except BrokenAnswers as error:
            if request.model.engine.precision != "auto":
                raise
            self._broken[precision] = str(error)
            self._context.log.line(f"  {error}")

    def _record(self, subject: str, rows: Array) -> AccuracyRecord:
        record = accuracy(subject, rows, self._standard)
        self._context.log.line(f"  {format_record(record)}")
        if record.verdict != "pass":
            place = worst_sample(rows, self._standard)
            sample = self._context.request.validation.values[place]
            text = f", {sample[:80]!r}" if isinstance(sample, str) else ""
            self._context.log.line(f"    its worst is sample {place + 1}{text}")
        return record

    def _rows(self, runtime: RuntimeName, path: Path, *, as_served: bool = False) -> Array:
        """Return every validation sample's row.

        `as_served`: in the order given and at the opt batch, since a dynamically quantized engine's
        answer depends on the rest of its batch. Otherwise by length, which is faster and gives the
        same rows.
        """
        request, encoder = self._context.request, self._prepared.encoder
        samples = request.validation.values
        batch = request.opt_shape.batch if as_served else REFERENCE_BATCH
        with ExitStack() as stack:
            engine = self._load(runtime, path, as_served=False)
            stack.callback(close, engine)
            answer = self._context.log.count_calls(
                engine.rows, -(-len(samples) // batch), "batches"
            )
            rows = rows_in_order if as_served else rows_by_length
            return rows(answer, encoder, samples, batch)


def standard(context: BuildContext, prepared: Prepared) -> Standard:
    """Return what a build's answers are compared with.

    Raises InputRefused and SourceFault for labels that decide nothing.
    """
    request, network = context.request, prepared.networks["float"]
    spec, labels = request.model.accuracy, request.validation.labels
    numbers = None
    if spec.metric == "accuracy" and labels is not None:
        numbers = class_indices(labels, network, spec.dataset)
        refuse_useless_labels(prepared.reference, numbers, spec.dataset)
    return Standard(
        reference=prepared.reference,
        metric=spec.metric,
        budget=spec.budget,
        labels=numbers,
        outputs=output_sizes(network.outputs),
    )


def verify_intent(context: BuildContext, candidates: Sequence[Candidate]) -> str:
    """Say what the step does."""
    engines = ", ".join(candidate.precision for candidate in candidates)
    count = len(context.request.validation)
    return f"{engines} against the source model, {count} samples that calibration never saw"
