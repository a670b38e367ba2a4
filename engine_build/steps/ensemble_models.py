"""The models of an ensemble: their archives in one repository, and how they answer in turn.

In the archive every step keeps its folders and files, but for `manifest_check.py`, which is of this
version: it finds the step's own manifest, which lies beside the ensemble's as `manifest-STEP.json`.
No two models' folders collide, since no model's name holds an underscore.

A model that answers is its own code, tokenizer or processor, network and head: with the engine, or
with its float network in its place, so that both answer the same requests. Tensors between models
are as Triton passes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path

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
from engine_build.packaging.archive import MANIFEST_CHECK, EngineArchive, backend_file
from engine_build.packaging.repository import CONFIGURATION, ENSEMBLE, Message, entry, tensors, text
from engine_build.request import BuildContext
from engine_build.sources.given_network import encoder_for
from engine_build.steps.step import BuildState
from onboarding.chain import Chain, Interface, chain, chain_problems
from onboarding.ensemble_spec import EnsembleSpec
from onboarding.manifest import (
    MANIFEST_NAME,
    EnsembleRecord,
    Manifest,
    ProcessingRecord,
    StepRecord,
    TensorRecord,
)


@dataclass(frozen=True, kw_only=True)
class Ensemble:
    """An ensemble of published engines: what it serves, and its archive's files and record."""

    spec: EnsembleSpec
    archives: Mapping[str, EngineArchive]
    chain: Chain

    @property
    def inputs(self) -> tuple[TensorRecord, ...]:
        """What clients send."""
        return self.chain.inputs

    @property
    def outputs(self) -> tuple[TensorRecord, ...]:
        """What clients get."""
        return self.chain.outputs

    @property
    def max_batch_size(self) -> int:
        """Rows of the largest batch that every step takes, or fewer where the file says so."""
        sizes = [archive.manifest.max_batch_size for archive in self.archives.values()]
        own = self.spec.serving.dynamic_batching.max_batch_size
        return min(sizes if own is None else [*sizes, own])

    @property
    def record(self) -> EnsembleRecord:
        """What the manifest says of the steps."""
        return EnsembleRecord(
            steps={
                name: StepRecord(
                    engine_key=archive.manifest.engine_key, manifest=_manifest_file(name)
                )
                for name, archive in self.archives.items()
            },
            images=tuple(self._images()),
            example=self.spec.example,
        )

    @property
    def configuration_file(self) -> str:
        """The archive path of the ensemble's own model configuration."""
        return f"{self.spec.name}/{CONFIGURATION}"

    def files(self, code_roots: tuple[Path, ...]) -> dict[str, Path | str]:
        """Files by archive path, a text as it stands. Raises InputRefused."""
        files: dict[str, Path | str] = {}
        digests: dict[str, str] = {}
        for name, archive in self.archives.items():
            for path, digest in archive.manifest.files.items():
                if digests.setdefault(path, digest) != digest:
                    raise InputRefused(
                        f"{path} of {name} is another file than that of the other steps; give both "
                        "models the same plugin, or rename one."
                    )
                is_check = Path(path).name == MANIFEST_CHECK
                files[path] = (
                    backend_file(code_roots, MANIFEST_CHECK) if is_check else archive.folder / path
                )
            files[_manifest_file(name)] = archive.folder / MANIFEST_NAME
        files[f"{self.spec.name}/1/ensemble.txt"] = ENSEMBLE
        return files | {self.configuration_file: text(self._configuration())}

    def _configuration(self) -> Message:
        steps: Message = [
            (
                "step",
                [
                    ("model_name", step.model),
                    ("model_version", -1),
                    *(("input_map", entry(*pair)) for pair in step.inputs),
                    *(("output_map", entry(*pair)) for pair in step.outputs),
                ],
            )
            for step in self.chain.steps
        ]
        return [
            ("platform", "ensemble"),
            ("max_batch_size", self.max_batch_size),
            *tensors("input", self.inputs),
            *tensors("output", self.outputs),
            ("ensemble_scheduling", steps),
        ]

    def _images(self) -> Iterator[str]:
        """Yield the inputs that a step reads as image files."""
        for step in self.chain.steps:
            manifest = self.archives[step.model].manifest
            if manifest.image_processor is not None and manifest.preprocessing is None:
                names = {record.name for record in self.inputs}
                yield from (tensor for _, tensor in step.inputs if tensor in names)


def ensemble_of(spec: EnsembleSpec, archives: Mapping[str, EngineArchive]) -> Ensemble:
    """Return the ensemble of a model file and its steps' archives. Raises InputRefused."""
    _refuse_other_runtimes(spec, archives)
    interfaces = {
        name: Interface(inputs=archive.manifest.inputs, outputs=archive.manifest.outputs)
        for name, archive in archives.items()
    }
    for problem in chain_problems(spec.steps, spec.outputs, interfaces):
        allowed = "" if problem.allowed is None else f"; allowed: {problem.allowed}"
        value = "" if problem.value is None else f" {problem.value!r}"
        raise InputRefused(
            f"models/{spec.name}.yaml: {problem.what}{value}{allowed}; {problem.way_out}."
        )
    return Ensemble(spec=spec, archives=archives, chain=chain(spec.steps, spec.outputs, interfaces))


def _refuse_other_runtimes(spec: EnsembleSpec, archives: Mapping[str, EngineArchive]) -> None:
    found = {
        name: (
            archive.manifest.platform,
            archive.manifest.runtime,
            archive.manifest.compute_capability,
        )
        for name, archive in archives.items()
    }
    if len(set(found.values())) > 1:
        listing = "; ".join(
            f"{name}: {platform}, {runtime.name} {runtime.version}, compute capability {capability}"
            for name, (platform, runtime, capability) in found.items()
        )
        raise InputRefused(
            f"the steps of {spec.name} were built for different servers: {listing}; build them "
            "again for one."
        )


def _manifest_file(step: str) -> str:
    """At the root, where both modes of Triton's SageMaker front end leave files alone."""
    return f"manifest-{step}.json"


BATCH = 16
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


class EnsembleModels:
    """The loaded models of an ensemble."""

    def __init__(self, ensemble: Ensemble, models: Mapping[str, StepModel]) -> None:
        self._ensemble, self._models = ensemble, models

    def answer(self, tensors: Tensors) -> Tensors:
        """Return what clients get of a request. Raises InputRefused."""
        name = self._ensemble.spec.name
        try:
            return self._answer(tensors)
        except (ValueError, ProcessingFailed, WrongAnswer) as fault:
            raise InputRefused(
                f"models/{name}.yaml: the ensemble gives no answer to its accuracy dataset or "
                f"example: {fault}; correct its models or the dataset."
            ) from fault

    def _answer(self, tensors: Tensors) -> Tensors:
        known = dict(tensors)
        for step in self._ensemble.chain.steps:
            given = {name: known[tensor] for name, tensor in step.inputs}
            answer = self._models[step.model].answer(given)
            known |= {tensor: answer[name] for name, tensor in step.outputs}
        return {record.name: known[record.name] for record in self._ensemble.outputs}


@contextmanager
def ensemble_models(
    context: BuildContext, state: BuildState, *, is_float: bool
) -> Iterator[EnsembleModels]:
    """Load every engine, or in its place its float network."""
    ensemble = state.ensemble
    with ExitStack() as stack:
        models = {
            name: stack.enter_context(StepModel(archive, state.networks[name], is_float=is_float))
            for name, archive in ensemble.archives.items()
        }
        yield EnsembleModels(ensemble, models)


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
