"""Rules of task tensors: an ONNX file of the tree, and the arrays that it is given."""

from __future__ import annotations

from collections.abc import Iterator

from onboarding.arrays import ArrayHeader
from onboarding.document import KeyPath
from onboarding.fault import Fault
from onboarding.nearest import comma_list, did_you_mean
from onboarding.onnx_header import TAKEN, NetworkTensor, OnnxHeader, way_out_of
from onboarding.rules.rule import ModelCase, rule, rules_of

NUMBERS = "fiub"
"""Kinds of numpy's types that an input's datatype may hold: floats, integers, bools."""


@rule("task", "source")
def network_is_readable(case: ModelCase) -> Iterator[Fault]:
    """A file that a download cut short, or a pointer of Git LFS in its place."""
    header = _header(case)
    if isinstance(header, str):
        yield case.document.at("source", "onnx").fault(
            f"'source.onnx' {header}",
            value=case.spec.source.onnx,
            way_out="export it again, or fetch it whole (`git lfs pull`)",
        )


@rule("task", "source")
def inputs_have_a_batch_axis(case: ModelCase) -> Iterator[Fault]:
    """Requests share batches, so axis 0 of every input and output has no fixed size."""
    header = _header(case)
    if not isinstance(header, OnnxHeader):
        return
    for tensor in (*header.inputs, *header.outputs):
        if tensor.shape is not None and tensor.shape[:1] != (-1,):
            yield case.document.at("source", "onnx").fault(
                f"'source.onnx' has no dynamic first axis in {tensor}",
                value=case.spec.source.onnx,
                allowed="a network whose axis 0 is the batch, without a size",
                way_out="export it with axis 0 of every input and output dynamic",
            )
            return


@rule("task", "source")
def datatypes_are_taken(case: ModelCase) -> Iterator[Fault]:
    """Inputs and outputs have datatypes that TensorRT takes as they are."""
    header = _header(case)
    if not isinstance(header, OnnxHeader):
        return
    for tensor in (*header.inputs, *header.outputs):
        if tensor.datatype not in TAKEN:
            yield case.document.at("source", "onnx").fault(
                f"'source.onnx' has {tensor}, a datatype that TensorRT does not take",
                value=case.spec.source.onnx,
                allowed=comma_list(TAKEN),
                way_out=way_out_of(tensor.datatype),
            )
            return


@rule("task", "source", "engine", "accuracy")
def arrays_fit_the_network(case: ModelCase) -> Iterator[Fault]:
    """Every input has an array of its name and shape, of numbers."""
    header = _header(case)
    if not isinstance(header, OnnxHeader):
        return
    engine = case.spec.engine
    datasets: tuple[tuple[KeyPath, str | None], ...] = (
        (
            ("engine", "calibration", "dataset"),
            None if engine.calibration is None else engine.calibration.dataset,
        ),
        (
            ("engine", "sensitivity_search", "dataset"),
            None if engine.sensitivity_search is None else engine.sensitivity_search.dataset,
        ),
        (("accuracy", "dataset"), case.spec.accuracy.dataset),
    )
    for path, dataset in datasets:
        arrays = () if dataset is None else case.datasets[dataset].arrays
        if not arrays:
            continue
        for what, way_out in _misfits(header.inputs, {array.name: array for array in arrays}):
            yield case.document.at(*path).fault(
                f"'{'.'.join(map(str, path))}' {what}",
                value=dataset,
                allowed=f"arrays of {comma_list(map(str, header.inputs))} (-1: any size)",
                way_out=way_out,
            )


def _header(case: ModelCase) -> OnnxHeader | str | None:
    return case.onnx_header if case.spec.task == "tensors" else None


def _misfits(
    inputs: tuple[NetworkTensor, ...], arrays: dict[str, ArrayHeader]
) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with a dataset, and the way out."""
    for tensor in inputs:
        array = arrays.get(tensor.name)
        if array is None:
            has = comma_list(arrays)
            yield (
                f"has no array for input {tensor.name!r} of the network; it has {has}",
                did_you_mean(tensor.name, arrays, "save it with numpy.savez, named as the input"),
            )
        elif tensor.shape is not None and not _fits(tensor.shape[1:], array.shape[1:]):
            yield (
                f"has rows of shape {list(array.shape[1:])} for input {tensor.name!r} of the "
                "network",
                "save the rows in that shape; axis 0 of an array counts its rows",
            )
        elif array.dtype.lstrip("<>|=")[:1] not in NUMBERS:
            yield (
                f"has an array of type {array.dtype} for input {tensor.name!r} of the network",
                f"save it as numbers that {tensor.datatype} holds",
            )


def _fits(sizes: tuple[int, ...], actual: tuple[int, ...]) -> bool:
    return len(sizes) == len(actual) and all(
        size in (-1, found) for size, found in zip(sizes, actual, strict=True)
    )


RULES = rules_of(globals())
