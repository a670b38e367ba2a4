"""The models of an ensemble, loaded, with the tensors between them as Triton passes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from container.triton.answer_check import WrongAnswer
from container.triton.processing import ProcessingFailed
from engine_build.context import BuildContext
from engine_build.datasets.dataset import Array, Sample
from engine_build.datasets.tensors import TensorEncoder
from engine_build.errors import InputRefused
from engine_build.packaging.ensemble import Ensemble
from engine_build.steps.step import BuildState
from engine_build.steps.step_model import StepModel, Tensors
from onboarding.example_row import row_shape, row_values
from onboarding.manifest import TensorRecord

BATCH = 16


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
    column: Array = np.empty((len(samples), 1), object)
    column[:, 0] = [str(sample).encode() for sample in samples]
    return {inputs[0].name: column}


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
    return {record.name: _example_row(row[record.name], record) for record in ensemble.inputs}


def _example_row(value: Any, record: TensorRecord) -> Array:
    values = row_values(value)
    name = record.datatype.lower().replace("fp", "float")
    array: Array = (
        np.array([str(text).encode() for text in values], object)
        if record.datatype == "BYTES"
        else np.array(values, np.dtype(name))
    )
    return array.reshape(1, *row_shape(value))
