"""Rules of datasets: present, of the right kind and the shapes of the network, large enough."""

from __future__ import annotations

from collections.abc import Iterator

from onboarding.dataset import (
    ARRAYS,
    FOLDER,
    LABELLED,
    LABELS,
    TEXTS,
    ArrayHeader,
    Dataset,
    Datasets,
)
from onboarding.fault import Fault, comma_list, did_you_mean
from onboarding.model_spec import ModelSpec
from onboarding.onnx_header import TAKEN, NetworkTensor, OnnxHeader, way_out_of
from onboarding.validation import Checked
from onboarding.values import Task

_CALIBRATION = "engine.calibration.dataset"
_SEARCH = "engine.sensitivity_search.dataset"
_VALIDATION = "accuracy.dataset"
ALLOWED: dict[Task, tuple[str, ...]] = {
    "image-classification": (FOLDER,),
    "tensors": (ARRAYS,),
    "text-ranking": (LABELLED,),
    "token-classification": (TEXTS,),
}
"""Kinds of files by task; of a ranker's .tsv the first column is a query and no label."""
_NAMES = {_CALIBRATION: "calibration", _SEARCH: "search"}
NUMBERS = "fiub"
"""Kinds of numpy's types that an input's datatype may hold: floats, integers, bools."""


def validation_dataset_is_usable(model: Checked[ModelSpec], datasets: Datasets) -> Iterator[Fault]:
    """The file is there, inside the root, and holds samples; `accuracy` needs labels."""
    accuracy = model.spec.accuracy
    dataset = datasets[accuracy.dataset]
    yield from _unusable(model, _VALIDATION, dataset)
    if "accuracy" in accuracy.metrics and dataset.problem is None and dataset.labels is None:
        yield model.at("accuracy.metric", _VALIDATION).fault(
            "'accuracy.metric' accuracy needs labels, and the dataset has none",
            value=accuracy.dataset,
            allowed=f"a {LABELLED} file (label, tab, text), an {ARRAYS} file with the array "
            f"{LABELS!r}, or images in a folder for each label",
            way_out="add labels, or use the metric agreement",
        )


def samples_are_there(model: Checked[ModelSpec], datasets: Datasets) -> Iterator[Fault]:
    """Of calibration and search: the file is usable, with as many samples as asked for."""
    engine = model.spec.engine
    for path, option in ((_CALIBRATION, engine.calibration), (_SEARCH, engine.sensitivity_search)):
        if option is None:
            continue
        dataset = datasets[option.dataset]
        yield from _unusable(model, path, dataset)
        if dataset.problem is None and dataset.count < option.samples:
            yield model.fault(
                path.replace("dataset", "samples"),
                f"is more than the samples of {option.dataset}",
                allowed=f"at most {dataset.count}",
                way_out="add samples, or ask for fewer",
                beside=[path],
            )


def datasets_fit_the_task(model: Checked[ModelSpec], datasets: Datasets) -> Iterator[Fault]:
    """Texts for text tasks, queries with texts for rankers, arrays for tensors, images."""
    allowed = ALLOWED.get(model.spec.task, (TEXTS, LABELLED))
    for path, name in _names_of(model).items():
        if datasets[name].problem is None and datasets[name].kind not in allowed:
            yield model.fault(
                path,
                f"is no dataset for task {model.spec.task}",
                allowed=FOLDER if FOLDER in allowed else f"files that end in {', '.join(allowed)}",
                way_out="name such a dataset, or correct the task",
                beside=["task"],
            )


def datasets_share_no_samples(model: Checked[ModelSpec], datasets: Datasets) -> Iterator[Fault]:
    """Accuracy on samples that calibration or the search saw says nothing."""
    named, paired = _names_of(model), model.spec.task == "text-ranking"
    for path, seen in (
        (_VALIDATION, _CALIBRATION),
        (_VALIDATION, _SEARCH),
        (_SEARCH, _CALIBRATION),
    ):
        if path not in named or seen not in named:
            continue
        if named[path] == named[seen]:
            yield model.fault(
                path,
                f"is the {_NAMES[seen]} dataset",
                way_out="name another file, of other samples",
                beside=[seen],
            )
            continue
        known = set(_samples(datasets[named[seen]], paired=paired))
        shared = [text for text in _samples(datasets[named[path]], paired=paired) if text in known]
        if shared:
            yield model.fault(
                path,
                f"shares {len(shared)} sample(s) with the {_NAMES[seen]} dataset, the first: "
                f"{shared[0][:40]!r}",
                allowed=f"no sample of {named[seen]}",
                way_out="remove these samples from one of the two files",
                beside=[seen],
            )


def network_is_readable(model: Checked[ModelSpec], datasets: Datasets) -> Iterator[Fault]:
    """An ONNX file of arbitrary tensors is whole, and has what servers and TensorRT can take.

    A download may be cut short, or a pointer of Git LFS lie in its place. Requests share batches,
    so axis 0 of every input and output has no fixed size.
    """
    header = _header(model, datasets)
    if isinstance(header, str):
        yield model.fault(
            "source.onnx", header, way_out="export it again, or fetch it whole (`git lfs pull`)"
        )
    if not isinstance(header, OnnxHeader):
        return
    tensors = (*header.inputs, *header.outputs)
    fixed = (item for item in tensors if item.shape is not None and item.shape[:1] != (-1,))
    for tensor in (*fixed,)[:1]:
        yield model.fault(
            "source.onnx",
            f"has no dynamic first axis in {tensor}",
            allowed="a network whose axis 0 is the batch, without a size",
            way_out="export it with axis 0 of every input and output dynamic",
        )
    for tensor in [item for item in tensors if item.datatype not in TAKEN][:1]:
        yield model.fault(
            "source.onnx",
            f"has {tensor}, a datatype that TensorRT does not take",
            allowed=comma_list(TAKEN),
            way_out=way_out_of(tensor.datatype),
        )


def arrays_fit_the_network(model: Checked[ModelSpec], datasets: Datasets) -> Iterator[Fault]:
    """Every input has an array of its name and shape, of numbers."""
    header = _header(model, datasets)
    if not isinstance(header, OnnxHeader):
        return
    for path, name in _names_of(model).items():
        arrays = {array.name: array for array in datasets[name].arrays}
        for what, way_out in _misfits(header.inputs, arrays) if arrays else ():
            yield model.fault(
                path,
                what,
                allowed=f"arrays of {comma_list(map(str, header.inputs))} (-1: any size)",
                way_out=way_out,
            )


def _names_of(model: Checked[ModelSpec]) -> dict[str, str]:
    """Return every dataset that a model names, by its key."""
    engine = model.spec.engine
    options = {
        _CALIBRATION: engine.calibration,
        _SEARCH: engine.sensitivity_search,
        _VALIDATION: model.spec.accuracy,
    }
    return {path: option.dataset for path, option in options.items() if option is not None}


def _samples(dataset: Dataset, *, paired: bool) -> tuple[str, ...]:
    """Return what may not occur twice: texts, or queries with their texts."""
    if not paired or dataset.labels is None:
        return dataset.texts or dataset.digests
    return tuple(
        f"{query} / {text}" for query, text in zip(dataset.labels, dataset.texts, strict=False)
    )


def _unusable(model: Checked[ModelSpec], path: str, dataset: Dataset) -> Iterator[Fault]:
    if dataset.problem is not None:
        yield model.fault(path, dataset.problem, way_out=dataset.way_out)


def _header(model: Checked[ModelSpec], datasets: Datasets) -> OnnxHeader | str | None:
    return datasets.onnx_header(model.spec.source.onnx) if model.spec.task == "tensors" else None


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


ACCURACY_RULES = (validation_dataset_is_usable,)
"""Of ensembles too."""
RULES = (
    samples_are_there,
    datasets_fit_the_task,
    datasets_share_no_samples,
    network_is_readable,
    arrays_fit_the_network,
)
