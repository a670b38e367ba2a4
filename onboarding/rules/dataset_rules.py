"""Rules of datasets: present, of the right kind and the shapes of the network, large enough."""

from __future__ import annotations

from collections.abc import Iterator

from onboarding.dataset import ARRAYS, FOLDER, LABELLED, LABELS, TEXTS, ArrayHeader, Dataset
from onboarding.document import KeyPath
from onboarding.fault import Fault
from onboarding.nearest import comma_list, did_you_mean
from onboarding.onnx_header import TAKEN, NetworkTensor, OnnxHeader, way_out_of
from onboarding.rules.rule import ModelCase, rule
from onboarding.values import Task

_CALIBRATION: KeyPath = ("engine", "calibration", "dataset")
_SEARCH: KeyPath = ("engine", "sensitivity_search", "dataset")
_VALIDATION: KeyPath = ("accuracy", "dataset")
ALLOWED: dict[Task, tuple[str, ...]] = {
    "image-classification": (FOLDER,),
    "tensors": (ARRAYS,),
    "text-ranking": (LABELLED,),
    "token-classification": (TEXTS,),
    "ensemble": (TEXTS, LABELLED, ARRAYS),
}
"""Kinds of files by task; of a ranker's .tsv the first column is a query and no label."""
_NAMES = {_CALIBRATION: "calibration", _SEARCH: "search"}


@rule("engine")
def calibration_dataset_is_usable(case: ModelCase) -> Iterator[Fault]:
    """The file is there, inside the root, and holds samples."""
    if case.spec.engine.calibration is not None:
        yield from _unusable(case, _CALIBRATION, case.spec.engine.calibration.dataset)


@rule("accuracy")
def validation_dataset_is_usable(case: ModelCase) -> Iterator[Fault]:
    """The file is there, inside the root, and holds samples."""
    yield from _unusable(case, _VALIDATION, case.spec.accuracy.dataset)


@rule("engine")
def search_dataset_is_usable(case: ModelCase) -> Iterator[Fault]:
    """The file is there, inside the root, and holds samples."""
    if case.spec.engine.sensitivity_search is not None:
        yield from _unusable(case, _SEARCH, case.spec.engine.sensitivity_search.dataset)


@rule("engine")
def samples_are_there(case: ModelCase) -> Iterator[Fault]:
    """As many samples as asked for."""
    for path, option in (
        (_CALIBRATION, case.spec.engine.calibration),
        (_SEARCH, case.spec.engine.sensitivity_search),
    ):
        dataset = (
            Dataset(problem="not asked for") if option is None else case.datasets[option.dataset]
        )
        if option is not None and dataset.problem is None and dataset.count < option.samples:
            wanted: KeyPath = (*path[:-1], "samples")
            yield case.document.at_change(wanted, path).fault(
                f"'{'.'.join(map(str, wanted))}' is more than the samples of {option.dataset}",
                value=option.samples,
                allowed=f"at most {dataset.count}",
                way_out="add samples, or ask for fewer",
            )


@rule("task", "engine", "accuracy")
def datasets_share_no_samples(case: ModelCase) -> Iterator[Fault]:
    """Accuracy on samples that calibration or the search saw says nothing."""
    calibration, search = case.spec.engine.calibration, case.spec.engine.sensitivity_search
    validation = case.spec.accuracy.dataset
    if calibration is not None:
        yield from _shared_samples(case, _VALIDATION, validation, _CALIBRATION, calibration.dataset)
    if search is not None:
        yield from _shared_samples(case, _VALIDATION, validation, _SEARCH, search.dataset)
    if calibration is not None and search is not None:
        yield from _shared_samples(case, _SEARCH, search.dataset, _CALIBRATION, calibration.dataset)


@rule("task", "engine", "accuracy")
def datasets_fit_the_task(case: ModelCase) -> Iterator[Fault]:
    """Texts for text tasks, queries with texts for rankers, arrays for tensors, images."""
    allowed = ALLOWED.get(case.spec.task, (TEXTS, LABELLED))
    engine = case.spec.engine
    datasets = (
        (_CALIBRATION, engine.calibration),
        (_SEARCH, engine.sensitivity_search),
        (_VALIDATION, case.spec.accuracy),
    )
    for path, option in datasets:
        dataset = None if option is None else case.datasets[option.dataset]
        if (
            option is not None
            and dataset is not None
            and dataset.problem is None
            and dataset.kind not in allowed
        ):
            yield case.document.at_change(path, ("task",)).fault(
                f"'{'.'.join(map(str, path))}' is no dataset for task {case.spec.task}",
                value=option.dataset,
                allowed=FOLDER if FOLDER in allowed else f"files that end in {', '.join(allowed)}",
                way_out="name such a dataset, or correct the task",
            )


@rule("accuracy")
def accuracy_needs_labels(case: ModelCase) -> Iterator[Fault]:
    """The metric `accuracy` needs labels."""
    dataset = case.datasets[case.spec.accuracy.dataset]
    if (
        "accuracy" in case.spec.accuracy.metrics
        and dataset.problem is None
        and dataset.labels is None
    ):
        yield case.document.at_change(("accuracy", "metric"), _VALIDATION).fault(
            "'accuracy.metric' accuracy needs labels, and the dataset has none",
            value=case.spec.accuracy.dataset,
            allowed=f"a {LABELLED} file (label, tab, text), an {ARRAYS} file with the array "
            f"{LABELS!r}, or images in a folder for each label",
            way_out="add labels, or use the metric agreement",
        )


def _shared_samples(
    case: ModelCase, path: KeyPath, dataset: str, other_path: KeyPath, other_dataset: str
) -> Iterator[Fault]:
    place = case.document.at_change(path, other_path)
    what, other = f"'{'.'.join(map(str, path))}'", _NAMES[other_path]
    if dataset == other_dataset:
        yield place.fault(
            f"{what} is the {other} dataset",
            value=dataset,
            way_out="name another file, of other samples",
        )
        return
    paired = case.spec.task == "text-ranking"
    known = set(_samples(case.datasets[other_dataset], paired=paired))
    shared = [text for text in _samples(case.datasets[dataset], paired=paired) if text in known]
    if shared:
        yield place.fault(
            f"{what} shares {len(shared)} sample(s) with the {other} dataset, the first: "
            f"{shared[0][:40]!r}",
            value=dataset,
            allowed=f"no sample of {other_dataset}",
            way_out="remove these samples from one of the two files",
        )


def _samples(dataset: Dataset, *, paired: bool) -> tuple[str, ...]:
    """Return what may not occur twice: texts, or queries with their texts."""
    if not paired or dataset.labels is None:
        return dataset.texts or dataset.digests
    return tuple(
        f"{query} / {text}" for query, text in zip(dataset.labels, dataset.texts, strict=False)
    )


def _unusable(case: ModelCase, path: KeyPath, dataset: str) -> Iterator[Fault]:
    found = case.datasets[dataset]
    if found.problem is not None:
        yield case.document.at(*path).fault(
            f"'{'.'.join(map(str, path))}' {found.problem}", value=dataset, way_out=found.way_out
        )


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
