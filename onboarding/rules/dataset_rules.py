"""Datasets: there, large enough, and never both teacher and judge."""

from __future__ import annotations

from collections.abc import Iterator

from onboarding.document import KeyPath
from onboarding.fault import Fault
from onboarding.rules.rule import ModelCase, rule

_CALIBRATION: KeyPath = ("engine", "calibration", "dataset")
_VALIDATION: KeyPath = ("accuracy", "dataset")


@rule("engine")
def calibration_dataset_is_usable(case: ModelCase) -> Iterator[Fault]:
    """The file is there, inside the root, and holds text."""
    if case.spec.engine.calibration is not None:
        yield from _unusable(case, _CALIBRATION, case.spec.engine.calibration.dataset)


@rule("accuracy")
def validation_dataset_is_usable(case: ModelCase) -> Iterator[Fault]:
    """The file is there, inside the root, and holds text."""
    yield from _unusable(case, _VALIDATION, case.spec.accuracy.dataset)


@rule("engine")
def samples_are_there(case: ModelCase) -> Iterator[Fault]:
    """As many lines as samples asked for."""
    calibration = case.spec.engine.calibration
    if calibration is None:
        return
    dataset = case.datasets[calibration.dataset]
    if dataset.problem is None and len(dataset.lines) < calibration.samples:
        yield case.document.at_change(("engine", "calibration", "samples"), _CALIBRATION).fault(
            f"'engine.calibration.samples' is more than the lines of {calibration.dataset}",
            value=calibration.samples,
            allowed=f"at most {len(dataset.lines)}",
            way_out="add lines, or ask for fewer samples",
        )


@rule("engine", "accuracy")
def judge_never_taught(case: ModelCase) -> Iterator[Fault]:
    """Accuracy on lines that calibration saw says nothing."""
    if case.spec.engine.calibration is None:
        return
    calibration, validation = case.spec.engine.calibration.dataset, case.spec.accuracy.dataset
    place = case.document.at_change(_VALIDATION, _CALIBRATION)
    if calibration == validation:
        yield place.fault(
            "'accuracy.dataset' is the calibration dataset", value=validation, way_out="name another file, of other lines"
        )
        return
    taught = set(case.datasets[calibration].lines)
    shared = [line for line in case.datasets[validation].lines if line in taught]
    if shared:
        yield place.fault(
            f"'accuracy.dataset' shares {len(shared)} line(s) with the calibration dataset, the first: {shared[0][:40]!r}",
            value=validation,
            allowed=f"no line of {calibration}",
            way_out="remove these lines from one of the two files",
        )


def _unusable(case: ModelCase, path: KeyPath, dataset: str) -> Iterator[Fault]:
    found = case.datasets[dataset]
    if found.problem is not None:
        yield case.document.at(*path).fault(f"'{'.'.join(map(str, path))}' {found.problem}", value=dataset, way_out=found.way_out)


RULES = (calibration_dataset_is_usable, validation_dataset_is_usable, samples_are_there, judge_never_taught)
