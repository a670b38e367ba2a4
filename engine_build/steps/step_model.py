"""One model of an ensemble as it answers: its own code, tokenizer or processor, network and head.

The same engine, or its float network in its place, so that both answer the same requests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from math import prod
from pathlib import Path

import numpy as np

from container.triton.answer_check import checked_answer
from container.triton.heads import Head
from container.triton.processing import Processing
from engine_build.datasets.dataset import Array, Encoder, Feed, Sample
from engine_build.evaluation.runtimes import Running, close, load_engine
from engine_build.onnx_graph.network_store import Network
from engine_build.ort import OrtNetwork
from engine_build.packaging.archive import EngineArchive
from engine_build.sources.given_network import encoder_for
from onboarding.manifest import Manifest, ProcessingRecord, TensorRecord

Tensors = dict[str, Array]


class StepModel:
    """A model that is loaded; used as a context manager, which ends the user's processes."""

    def __init__(self, archive: EngineArchive, network: Network, *, is_float: bool) -> None:
        """`network` is the float network; `is_float`: it answers in the engine's place."""
        manifest = archive.manifest
        self._manifest, self._network = manifest, network
        self._encoder = _encoder(manifest, network)
        self._head = Head(manifest.model_dump(mode="json")) if manifest.activation else None
        self._stack = ExitStack()
        self._processing = {
            function: self._process(archive.folder, function, record)
            for function, record in (
                ("preprocess", manifest.preprocessing),
                ("postprocess", manifest.postprocessing),
            )
            if record is not None
        }
        is_onnx = is_float or manifest.runtime.name == "onnxruntime"
        path = network.path if is_float else archive.folder / manifest.engine_file
        self._engine: OrtNetwork | Running = (
            OrtNetwork(path) if is_onnx else load_engine("tensorrt", path)
        )
        self._stack.callback(close, self._engine)

    def __enter__(self) -> StepModel:
        """Return itself."""
        return self

    def __exit__(self, *fault: object) -> None:
        """End processes and give memory back."""
        self._stack.close()

    def answer(self, tensors: Mapping[str, Array]) -> Tensors:
        """Return what clients of this model get.

        Raises ValueError, ProcessingFailed, WrongAnswer and InputRefused.
        """
        given = self._processed("preprocess", self._manifest.preprocessing, dict(tensors))
        answers = self._values(given)
        return self._processed("postprocess", self._manifest.postprocessing, answers)

    def _process(self, folder: Path, function: str, record: ProcessingRecord) -> Processing:
        seconds = record.timeout_ms / 1000
        processing = Processing(folder / record.file, function, seconds=seconds)
        self._stack.callback(processing.close)
        return processing

    def _processed(
        self, function: str, record: ProcessingRecord | None, tensors: Tensors
    ) -> Tensors:
        if record is None:
            return tensors
        answer = self._processing[function].call(tensors)
        outputs = [output.model_dump() for output in record.outputs]
        return checked_answer(answer, outputs, _rows(tensors), function)

    def _values(self, tensors: Tensors) -> Tensors:
        feed, records = self._feed(tensors), self._network.outputs
        if isinstance(self._engine, OrtNetwork):
            values = self._engine.values([record.name for record in records], feed)
        else:
            values = _split(self._engine.rows(feed), records)
        if self._head is not None:
            logits = values[records[0].name]
            return dict(zip(self._head.outputs, self._head.answers(logits), strict=True))
        if self._encoder is None:
            return {
                name: value if value.ndim > 1 else value[:, None] for name, value in values.items()
            }
        after = self._manifest.postprocessing
        named = self._manifest.outputs if after is None else after.inputs
        return {named[0].name: values[records[0].name].astype(np.float32)}

    def _feed(self, tensors: Tensors) -> Feed:
        if self._encoder is not None:
            before = self._manifest.preprocessing
            named = self._manifest.inputs if before is None else before.outputs
            columns = [tensors[record.name] for record in named]
            is_text = self._manifest.image_processor is None
            return self._encoder.feed(_samples(columns, is_text=is_text))
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


def _samples(columns: Sequence[Array], *, is_text: bool) -> list[Sample]:
    """Return the texts, pairs or image files of columns [rows, 1] of bytes."""
    rows: list[Sample] = []
    for items in zip(*(column.reshape(-1) for column in columns), strict=True):
        first, *second = [item if isinstance(item, bytes) else str(item).encode() for item in items]
        if second:
            rows.append((first.decode(), second[0].decode()))
        else:
            rows.append(first.decode() if is_text else first)
    return rows


def _split(rows: Array, records: Sequence[TensorRecord]) -> Tensors:
    """Return a plan's outputs of its rows, float32 [rows, values] side by side."""
    values: Tensors = {}
    begin = 0
    for record in records:
        sizes = record.shape[1:]
        size = rows.shape[1] if -1 in sizes else prod(sizes)
        part = rows[:, begin : begin + size].reshape(len(rows), *(sizes or (1,)))
        values[record.name] = part.astype(record.datatype.lower().replace("fp", "float"))
        begin += size
    return values


def _rows(tensors: Tensors) -> int:
    return len(next(iter(tensors.values())))
