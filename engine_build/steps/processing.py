"""The processing step: a user's preprocessing and postprocessing on the first validation samples.

Each runs as Triton runs it, in a process of its own with its time limit, so that a file which
cannot answer is refused by the build and not by the first client. What is judged for accuracy
stays the network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from container.triton.answer_check import WrongAnswer, checked_answer
from container.triton.heads import Head
from container.triton.processing import Processing, ProcessingFailed
from engine_build.context import BuildContext
from engine_build.datasets.dataset import Array, Sample
from engine_build.datasets.tensors import bytes_column, example_row, record_dtype
from engine_build.errors import InputRefused
from engine_build.ort import OrtNetwork
from engine_build.packaging.served import Served
from engine_build.steps.package import served_engine
from engine_build.steps.step import BuildState, Step
from onboarding.manifest import ProcessingRecord, TensorRecord
from onboarding.processing_spec import PreprocessingSpec, ProcessingSpec

ROWS = 4
Tensors = dict[str, Array]


def run(context: BuildContext, state: BuildState) -> None:
    """Run what there is of both on a few rows. Raises InputRefused."""
    request, network = context.request, state.networks["float"]
    served = served_engine(request, network)
    samples = request.validation.values[:ROWS]
    intent = f"the model's own code on {len(samples)} validation samples, in processes of its own"
    with context.log.step("processing", intent):
        if (before := served.preprocessing) is not None:
            given = _client_tensors(served, samples)
            answer = _answer(context, "preprocess", before, served.serving.preprocessing, given)
            if answer is not None and served.encoder is not None:
                samples = _samples(served, answer)
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
    outputs, rows = [output.model_dump() for output in record.outputs], _rows(given)
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


def _client_tensors(served: Served, samples: Sequence[Sample]) -> Tensors | None:
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
    if not spec.inputs:
        return _tensors(served.client_inputs, samples)
    lone = spec.inputs[0]
    if len(spec.inputs) == 1 and lone.datatype == "BYTES" and isinstance(samples[0], str | bytes):
        return _tensors(served.client_inputs, samples) if lone.dims == (1,) else None
    return None


def _tensors(records: Sequence[TensorRecord], samples: Sequence[Sample]) -> Tensors:
    """Return samples as tensors by name, a row each."""
    first = samples[0]
    if isinstance(first, Mapping):
        stacked = {
            record.name: np.stack([np.asarray(sample[record.name]) for sample in samples])  # type: ignore[call-overload,index]
            for record in records
        }
        return {
            record.name: stacked[record.name]
            .astype(record_dtype(record))
            .reshape(len(samples), *stacked[record.name].shape[1:] or (1,))
            for record in records
        }
    pairs: list[Any] = [sample if isinstance(sample, tuple) else (sample,) for sample in samples]
    return {
        record.name: bytes_column([texts[place] for texts in pairs])
        for place, record in enumerate(records)
    }


def _samples(served: Served, answer: Tensors) -> tuple[Sample, ...]:
    """Return preprocessed texts, pairs or files of images as samples."""
    if not served.is_text:
        return tuple(answer[served.model_inputs[0].name][:, 0])
    columns = [
        [text.decode("utf-8", "replace") for text in answer[record.name][:, 0]]
        for record in served.model_inputs
    ]
    if len(columns) == 1:
        return tuple(columns[0])
    return tuple(zip(columns[0], columns[1], strict=True))


def _model_answer(served: Served, state: BuildState, samples: Sequence[Sample]) -> Tensors | None:
    """Return the model's answer to samples; None of token classifiers, whose spans Triton has."""
    network = OrtNetwork(state.networks["float"].path)
    names = [record.name for record in served.outputs]
    if served.encoder is None:
        values = network.values(names, state.encoder.feed(samples))
        return {name: value if value.ndim > 1 else value[:, None] for name, value in values.items()}
    if served.task == "token-classification":
        return None
    (logits,) = network.values(names[:1], state.encoder.feed(samples)).values()
    if not served.has_head:
        return {served.model_outputs[0].name: logits.astype(np.float32)}
    facts = {
        "task": served.task,
        "labels": state.networks["float"].labels,
        "activation": served.activation,
        "outputs": [record.model_dump() for record in served.model_outputs],
    }
    head = Head(facts)
    return dict(zip(head.outputs, head.answers(logits), strict=True))


def _rows(tensors: Tensors) -> int:
    return len(next(iter(tensors.values())))


def _listing(records: Sequence[TensorRecord]) -> str:
    return ", ".join(f"{record.name} {record.datatype}" for record in records)


PROCESSING = Step(
    name="processing",
    run=run,
    applies=lambda context: (
        context.request.model.serving.preprocessing is not None
        or context.request.model.serving.postprocessing is not None
    ),
)
