"""Rules of datasets: present, of the right kind, large enough, without shared samples."""

from __future__ import annotations

from collections.abc import Iterator

from onboarding.dataset import ARRAYS, LABELLED, LABELS, TEXTS, Dataset
from onboarding.document import KeyPath
from onboarding.fault import Fault
from onboarding.image_files import FOLDER
from onboarding.rules.rule import ModelCase, rule, rules_of
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


RULES = rules_of(globals())
