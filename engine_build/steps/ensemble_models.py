"""How the models of an ensemble answer in turn.

A model that answers is its own code, tokenizer or processor, network and head: with the engine, or
with its float network in its place, so that both answer the same requests. Tensors between models
are as Triton passes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from math import prod

import numpy as np

from container.triton.answer_check import WrongAnswer, checked_answer
from container.triton.heads import Head
from container.triton.processing import Processing, ProcessingFailed
from engine_build.datasets.dataset import Array, Encoder, Feed, Sample
from engine_build.datasets.tensors import TensorEncoder, bytes_column, example_row, record_dtype
from engine_build.errors import InputRefused
from engine_build.evaluation.runtimes import Running, close, load_engine
from engine_build.onnx_graph.network_store import Network
from engine_build.ort import OrtNetwork
from engine_build.packaging.archive import EngineArchive
from engine_build.packaging.ensemble import Ensemble
from engine_build.request import BuildContext
from engine_build.sources.given_network import encoder_for
from engine_build.steps.step import BuildState
from onboarding.manifest import (
    Manifest,
    ProcessingRecord,
    TensorRecord,
)

BATCH = 16
Tensors = dict[str, Array]


class StepModel:
    """A model that is loaded, with the processes of a user's code."""

    def __init__(self, archive: EngineArchive, network: Network, *, is_float: bool) -> None:
        """`network` is the float network; `is_float`: it answers in the engine's place."""
        manifest = archive.manifest
        self._manifest, self._network = manifest, network
        self._encoder = _encoder(manifest, network)
        self._head = Head(manifest.model_dump(mode="json")) if manifest.activation else None
        self._stack = ExitStack()
        self._processing = {
            function: Processing(
                archive.folder / record.file, function, seconds=record.timeout_ms / 1000
            )
            for function, record in (
                ("preprocess", manifest.preprocessing),
                ("postprocess", manifest.postprocessing),
            )
            if record is not None
        }
        for processing in self._processing.values():
            self._stack.callback(processing.close)
        is_onnx = is_float or manifest.runtime.name == "onnxruntime"
        path = network.path if is_float else archive.folder / manifest.engine_file
        self._engine: OrtNetwork | Running = (
            OrtNetwork(path) if is_onnx else load_engine("tensorrt", path)
        )
        self._stack.callback(close, self._engine)

    def close(self) -> None:
        """End processes and give memory back."""
        self._stack.close()

    def answer(self, tensors: Mapping[str, Array]) -> Tensors:
        """Return what clients of this model get.

        Raises ValueError, ProcessingFailed, WrongAnswer and InputRefused.
        """
        given = self._processed("preprocess", self._manifest.preprocessing, dict(tensors))
        answers = self._values(given)
        return self._processed("postprocess", self._manifest.postprocessing, answers)

    def _processed(
        self, function: str, record: ProcessingRecord | None, tensors: Tensors
    ) -> Tensors:
        if record is None:
            return tensors
        answer = self._processing[function].call(tensors)
        outputs = [output.model_dump() for output in record.outputs]
        return checked_answer(answer, outputs, len(next(iter(tensors.values()))), function)

    def _values(self, tensors: Tensors) -> Tensors:
        feed, records = self._feed(tensors), self._network.outputs
        if isinstance(self._engine, OrtNetwork):
            values = self._engine.values([record.name for record in records], feed)
        else:
            values = _split(self._engine.rows(feed), records)
        after = self._manifest.postprocessing
        named = self._manifest.outputs if after is None else after.inputs
        return model_answer(values, self._head, None if self._encoder is None else named[0].name)

    def _feed(self, tensors: Tensors) -> Feed:
        if self._encoder is not None:
            before = self._manifest.preprocessing
            named = self._manifest.inputs if before is None else before.outputs
            columns = [tensors[record.name] for record in named]
            is_text = self._manifest.image_processor is None
            return self._encoder.feed(samples_of(columns, is_text=is_text))
        return {
            record.name: tensors[record.name][:, 0]
            if len(record.shape) == 1
            else tensors[record.name]
            for record in self._network.inputs
        }


def _encoder(manifest: Manifest, network: Network) -> Encoder | None:
    """Return what reads texts or images; None where clients send the network's own inputs."""
    if manifest.tokenizer_file is None and manifest.image_processor is None:
        return None
    profiles = manifest.optimization_profiles
    longest = max((item.sequence[2] for item in profiles if item.sequence), default=None)
    return encoder_for(network, longest)


def model_answer(values: Tensors, head: Head | None, answer: str | None) -> Tensors:
    """Return what a model makes of its network's outputs, each with an axis of rows and another.

    `answer` names the first output of a model behind an encoder; None: clients get all as they are.
    """
    first = next(iter(values.values()))
    if head is not None:
        return dict(zip(head.outputs, head.answers(first), strict=True))
    if answer is not None:
        return {answer: first.astype(np.float32)}
    return by_rows(values)


def by_rows(tensors: Mapping[str, Array]) -> Tensors:
    """Return tensors of one value a row with a second axis of 1, as Triton passes them."""
    return {name: value if value.ndim > 1 else value[:, None] for name, value in tensors.items()}


def samples_of(columns: Sequence[Array], *, is_text: bool) -> list[Sample]:
    """Return the texts, pairs or image files of columns [rows, 1] of bytes."""
    if not is_text:
        return list(columns[0].reshape(-1))
    rows = zip(*(map(_text, column.reshape(-1)) for column in columns), strict=True)
    return [row[0] if len(row) == 1 else (row[0], row[1]) for row in rows]


def _text(item: bytes | str) -> str:
    return item.decode("utf-8", "replace") if isinstance(item, bytes) else item


def _split(rows: Array, records: Sequence[TensorRecord]) -> Tensors:
    """Return a plan's outputs of its rows, float32 [rows, values] side by side."""
    values: Tensors = {}
    begin = 0
    for record in records:
        sizes = record.shape[1:]
        size = rows.shape[1] if -1 in sizes else prod(sizes)
        part = rows[:, begin : begin + size].reshape(len(rows), *(sizes or (1,)))
        values[record.name] = part.astype(record_dtype(record))
        begin += size
    return values


@contextmanager
def ensemble_models(
    context: BuildContext, state: BuildState, *, is_float: bool
) -> Iterator[Callable[[Tensors], Tensors]]:
    """Load every engine, or in its place its float network; yield what answers requests.

    It raises InputRefused for a request that gets no answer.
    """
    ensemble, spec = state.ensemble, state.ensemble.spec
    with ExitStack() as stack:
        models = {
            name: stack.enter_context(
                closing(StepModel(archive, state.networks[name], is_float=is_float))
            )
            for name, archive in ensemble.archives.items()
        }

        def answer(tensors: Tensors) -> Tensors:
            known = dict(tensors)
            try:
                for step in ensemble.chain.steps:
                    given = {name: known[tensor] for name, tensor in step.inputs}
                    answers = models[step.model].answer(given)
                    known |= {tensor: answers[name] for name, tensor in step.outputs}
            except (ValueError, ProcessingFailed, WrongAnswer) as fault:
                raise InputRefused(
                    f"models/{spec.name}.yaml: the ensemble gives no answer to its accuracy "
                    f"dataset or example: {fault}; correct its models or the dataset."
                ) from fault
            return {record.name: known[record.name] for record in ensemble.outputs}

        yield answer


def batches(ensemble: Ensemble, samples: Sequence[Sample]) -> Iterator[Tensors]:
    """Yield samples as requests. Raises InputRefused for those of another form."""
    size = min(BATCH, ensemble.max_batch_size)
    for begin in range(0, len(samples), size):
        yield request_tensors(ensemble, samples[begin : begin + size])


def request_tensors(ensemble: Ensemble, samples: Sequence[Sample]) -> Tensors:
    """Return samples as clients send them. Raises InputRefused for those of another form."""
    inputs = ensemble.inputs
    if isinstance(samples[0], Mapping):
        if any(record.datatype == "BYTES" for record in inputs):
            raise _unfit(ensemble, "arrays")
        return dict(TensorEncoder(inputs).feed(samples))
    if len(inputs) != 1 or inputs[0].datatype != "BYTES" or not isinstance(samples[0], str):
        raise _unfit(ensemble, "texts")
    return {inputs[0].name: bytes_column(list(map(str, samples)))}


def _unfit(ensemble: Ensemble, kind: str) -> InputRefused:
    listing = ", ".join(f"{item.name} {item.datatype}" for item in ensemble.inputs)
    return InputRefused(
        f"accuracy dataset {ensemble.spec.accuracy.dataset} holds {kind}, and clients of "
        f"{ensemble.spec.name} send {listing}; give texts for one input of texts, or arrays "
        "(.npz) by the names of inputs."
    )


def example_request(ensemble: Ensemble) -> Tensors | None:
    """Return the file's example as a request of one row; None where it gives none."""
    row = ensemble.spec.example
    if row is None:
        return None
    names = [record.name for record in ensemble.inputs]
    if sorted(row) != sorted(names):
        raise InputRefused(
            f"models/{ensemble.spec.name}.yaml: 'example' has {', '.join(row) or 'nothing'}; "
            f"clients send {', '.join(names)}."
        )
    return {record.name: example_row(row[record.name], record) for record in ensemble.inputs}
