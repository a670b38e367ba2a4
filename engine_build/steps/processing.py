"""The processing step: a user's preprocessing and postprocessing on the first validation samples.

Each runs as Triton runs it, in a process of its own with its time limit, so that a file which
cannot answer is refused by the build and not by the first client. What is judged for accuracy
stays the network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from container.triton.answer_check import WrongAnswer, checked_answer
from container.triton.heads import Head
from container.triton.processing import Processing, ProcessingFailed
from engine_build.datasets.dataset import Encoder, Sample
from engine_build.datasets.tensors import bytes_column, example_row
from engine_build.errors import InputRefused
from engine_build.ort import OrtNetwork
from engine_build.packaging.served import Served
from engine_build.request import BuildContext
from engine_build.steps.ensemble_models import Tensors, by_rows, model_answer, samples_of
from engine_build.steps.package import served_engine
from engine_build.steps.step import BuildState
from onboarding.manifest import ProcessingRecord, TensorRecord
from onboarding.serving_spec import PreprocessingSpec, ProcessingSpec

ROWS = 4


def run(context: BuildContext, state: BuildState) -> None:
    """Run what there is of both on a few rows. Raises InputRefused."""
    request, network = context.request, state.networks["float"]
    served = served_engine(request, network)
    samples = request.validation.values[:ROWS]
    intent = f"the model's own code on {len(samples)} validation samples, in processes of its own"
    with context.log.step("processing", intent):
        if (before := served.preprocessing) is not None:
            given = _client_tensors(served, state.encoder, samples)
            answer = _answer(context, "preprocess", before, served.serving.preprocessing, given)
            if answer is not None and served.encoder is not None:
                columns = [answer[record.name] for record in served.model_inputs]
                samples = tuple(samples_of(columns, is_text=served.is_text))
        if (after := served.postprocessing) is not None:
            given = _model_answer(served, state, samples)
            _answer(context, "postprocess", after, served.serving.postprocessing, given)


def _answer(
    context: BuildContext,
    function: str,
    record: ProcessingRecord,
    spec: ProcessingSpec | None,
    given: Tensors | None,
) -> Tensors | None:
    """Return what the user's function makes of tensors; of none it is loaded alone."""
    assert spec is not None
    path = context.request.root / spec.file
    try:
        processing = Processing(path, function, seconds=spec.timeout_ms / 1000)
    except ProcessingFailed as fault:
        raise InputRefused(f"{spec.file}: {fault}; correct it.") from fault
    if given is None:
        processing.close()
        context.log.line(f"  {function}() is loaded and, without an example of its inputs, not run")
        return None
    outputs = [output.model_dump() for output in record.outputs]
    rows = len(next(iter(given.values())))
    try:
        answer = processing.call(given)
    except (ValueError, ProcessingFailed) as fault:
        has_example = isinstance(spec, PreprocessingSpec) and spec.example is not None
        samples = f"the first {rows} samples of the accuracy dataset"
        origin = "the example of its inputs" if has_example else samples
        raise InputRefused(
            f"{spec.file}: {function}() gives no answer to {origin}: {fault}; correct it."
        ) from fault
    finally:
        processing.close()
    try:
        checked = checked_answer(answer, outputs, rows, function)
    except WrongAnswer as fault:
        raise InputRefused(f"{spec.file}: {fault}; correct it, or what the file declares.") from (
            fault
        )
    context.log.line(f"  {function}(): {_listing(record.inputs)} -> {_listing(record.outputs)}")
    return checked


def _client_tensors(served: Served, encoder: Encoder, samples: Sequence[Sample]) -> Tensors | None:
    """Return the file's example, or the samples as a client sends them.

    None where there is no example and their form is the user's own.
    """
    spec = served.serving.preprocessing
    assert spec is not None
    if spec.example is not None:
        return {
            record.name: example_row(spec.example[record.name], record)
            for record in served.client_inputs
        }
    is_known = not spec.inputs
    if len(spec.inputs) == 1 and isinstance(samples[0], str | bytes):
        is_known = spec.inputs[0].datatype == "BYTES" and spec.inputs[0].dims == (1,)
    if not is_known:
        return None
    if isinstance(samples[0], Mapping):
        return by_rows(encoder.feed(samples))
    rows: list[Any] = [sample if isinstance(sample, tuple) else (sample,) for sample in samples]
    columns = zip(*rows, strict=True)
    return {
        record.name: bytes_column(column)
        for record, column in zip(served.client_inputs, columns, strict=False)
    }


def _model_answer(served: Served, state: BuildState, samples: Sequence[Sample]) -> Tensors | None:
    """Return the model's answer to samples; None of token classifiers, whose spans Triton has."""
    if served.task == "token-classification":
        return None
    network, head = state.networks["float"], None
    if served.has_head:
        facts = {
            "task": served.task,
            "labels": network.labels,
            "activation": served.activation,
            "outputs": [record.model_dump() for record in served.model_outputs],
        }
        head = Head(facts)
    names = [record.name for record in served.outputs]
    values = OrtNetwork(network.path).values(names, state.encoder.feed(samples))
    answer = None if served.encoder is None else served.model_outputs[0].name
    return model_answer(values, head, answer)


def _listing(records: Sequence[TensorRecord]) -> str:
    return ", ".join(f"{record.name} {record.datatype}" for record in records)
