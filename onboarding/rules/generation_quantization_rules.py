"""Rules of a text generator's quantization: its texts, its task file, and what it may compare."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from onboarding.dataset import is_inside
from onboarding.document import KeyPath
from onboarding.fault import Fault
from onboarding.rules.generation_case import GenerationCase
from onboarding.rules.rule import rule, rules_of
from onboarding.starter_texts import evaluation_path
from onboarding.text_generation.task_file import TaskFileError, least_drop, read_task_file
from onboarding.text_generation.texts import (
    ENOUGH_SAMPLES,
    KINDS,
    TextsError,
    read_texts,
    shared_line,
)

CALIBRATED = ("int8", "awq", "gptq", "nvfp4", "w4a8-fp8")
"""Schemes whose ranges are set by texts."""
LARGEST_DATASET_BYTES = 64 << 20
"""Larger ones are read when they are used: `check` is to answer within two seconds."""
_CALIBRATION: KeyPath = ("quantization", "calibration", "dataset")
_EVALUATION: KeyPath = ("quantization", "evaluation", "dataset")
_TASK: KeyPath = ("quantization", "budget", "task", "file")


@rule("quantization")
def calibration_is_named(case: GenerationCase) -> Iterator[Fault]:
    """Ranges of some schemes come from texts."""
    quantization = case.spec.quantization
    needy = [name for name in quantization.schemes if name in CALIBRATED]
    if needy and quantization.calibration is None:
        yield case.document.at("quantization", "schemes").fault(
            f"'quantization.calibration' is missing, which {', '.join(needy)} needs",
            way_out="add `calibration: {dataset: models/data/chat.jsonl}`, or leave the scheme out",
        )


@rule("quantization")
def quantization_files_are_there(case: GenerationCase) -> Iterator[Fault]:
    """Texts and task files lie under the onboarding root."""
    for path, file in _files(case).items():
        if not _is_there(case, file):
            yield case.document.at(*path).fault(
                f"'{'.'.join(map(str, path))}' is no file under the onboarding root",
                value=file,
                way_out="add the file, or correct the path",
            )


@rule("quantization")
def quantization_texts_can_be_read(case: GenerationCase) -> Iterator[Fault]:
    """Each line is a text or the messages of a chat, and held-out texts are enough to judge."""
    for path, file in _files(case).items():
        if path == _TASK or not _is_small(case, file):
            continue
        try:
            count = sum(1 for _ in read_texts(case.root / file))
        except TextsError as error:
            where = file if error.line is None else f"{file}:{error.line}"
            yield case.document.at(*path).fault(
                f"'{'.'.join(map(str, path))}' {error.what}", value=where, way_out=error.way_out
            )
            continue
        least = ENOUGH_SAMPLES if path == _EVALUATION else 1
        if count < least:
            yield case.document.at(*path).fault(
                f"'{'.'.join(map(str, path))}' has {count} samples",
                value=file,
                allowed=f"{least} or more, in a file that ends in {', '.join(KINDS)}",
                way_out="add texts",
            )


@rule("quantization")
def evaluation_texts_are_held_out(case: GenerationCase) -> Iterator[Fault]:
    """A checkpoint looks better on the texts that set its ranges than it is."""
    calibration = case.spec.quantization.calibration
    if calibration is None or not _is_small(case, calibration.dataset):
        return
    named = case.spec.quantization.evaluation.dataset
    if named is not None and not _is_small(case, named):
        return
    evaluation = evaluation_path() if named is None else case.root / named
    try:
        shared = shared_line(case.root / calibration.dataset, calibration.samples, evaluation)
    except TextsError:
        return
    if shared is not None:
        yield case.document.at_change(_EVALUATION, _CALIBRATION).fault(
            "'quantization.evaluation' holds texts that 'quantization.calibration' holds too",
            value=f"{named or 'the shipped texts'}, line {shared[0]}, and "
            f"{calibration.dataset}, line {shared[1]}",
            way_out="take the line out of one of the files",
        )


@rule("quantization")
def task_file_can_be_read(case: GenerationCase) -> Iterator[Fault]:
    """A task is prompts with the answers expected."""
    file = _files(case).get(_TASK)
    if file is None or not _is_there(case, file):
        return
    name = f"'{'.'.join(map(str, _TASK))}'"
    try:
        items = len(read_task_file(case.root / file).items)
    except TaskFileError as error:
        what, _, way_out = str(error).rpartition("; ")
        yield case.document.at(*_TASK).fault(f"{name} {what}", value=file, way_out=way_out)
        return
    task, least = case.spec.quantization.budget.task, least_drop(items)
    if task is not None and task.drop < least:
        yield case.document.at(*_TASK).fault(
            f"{name} has too few items to show that the score falls by {task.drop:g} at most: even "
            "where no answer changes, the 95 % interval ends above it",
            value=f"{items} items",
            allowed=f"a drop of {math.ceil(1000 * least) / 1000:g} or more with these",
            way_out="add items (0.02 takes 137, 0.05 takes 54), or allow a larger drop",
        )


def _files(case: GenerationCase) -> dict[KeyPath, str]:
    quantization = case.spec.quantization
    calibration, task = quantization.calibration, quantization.budget.task
    named = {
        _CALIBRATION: None if calibration is None else calibration.dataset,
        _EVALUATION: quantization.evaluation.dataset,
        _TASK: None if task is None else task.file,
    }
    return {path: file for path, file in named.items() if file is not None}


def _is_there(case: GenerationCase, file: str) -> bool:
    return bool(file) and is_inside(case.root, file) and (case.root / file).is_file()


def _is_small(case: GenerationCase, file: str) -> bool:
    path: Path = case.root / file
    return _is_there(case, file) and path.stat().st_size <= LARGEST_DATASET_BYTES


RULES = rules_of(globals())
