"""The grid of a comparison: its axes, and its cells as overrides of one model file. Pure."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from onboarding.values import RequestedPrecision
from roundhouse.errors import UsageError
from roundhouse.text import choices

Overrides = dict[str, Any]
AXES = ("precision", "batching", "instances", "instance_type")
MOST_CELLS = 64
"""Endpoints, each of which is built, deployed and loaded."""
BATCHING = ("off", "on")
DEFAULT_INSTANCES = ("1", "2")
MOST_INSTANCES = 128


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """What a comparison knows of the model as the environment has it."""

    is_gpu: bool
    has_calibration: bool
    instance_type: str
    profiles: tuple[Mapping[str, Any], ...] = ()
    """The file's optimization profiles."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One candidate: a value of every axis that varies, and what it overrides in the model file."""

    values: tuple[tuple[str, str], ...]
    overrides: Overrides

    @property
    def name(self) -> str:
        """Its values, in the order of the axes: short, and a part of a model's name."""
        words = [_word(axis, value) for axis, value in self.values]
        return "-".join(words) or "as-it-is"


def cells(axes: Mapping[str, Sequence[str]], candidate: Candidate) -> tuple[Cell, ...]:
    """Return the cells of a grid, first axis outermost. Raises UsageError for none or too many."""
    for axis, values in axes.items():
        _require_values(axis, values)
    names = [axis for axis in AXES if axis in axes]
    grid = [
        dict(zip(names, values, strict=True))
        for values in itertools.product(*(dict.fromkeys(axes[name]) for name in names))
    ]
    found = {cell.name: cell for values in grid for cell in (_cell(values, candidate),)}
    if len(found) > MOST_CELLS:
        raise UsageError(
            f"the grid has {len(found):,} cells, and each is built, deployed and loaded; at most "
            f"{MOST_CELLS} are compared: leave out values or an axis."
        )
    return tuple(found.values())


def default_values(axis: str, candidate: Candidate) -> tuple[str, ...]:
    """Return what an axis varies over where no values are given. Raises UsageError."""
    if axis == "precision":
        high = "fp16" if candidate.is_gpu else "fp32"
        return (high, "int8") if candidate.has_calibration else (high,)
    if axis == "batching":
        return BATCHING
    if axis == "instances":
        return DEFAULT_INSTANCES
    if axis == "instance_type":
        raise UsageError("--axes instance_type: give the types, --instance-type TYPE,TYPE.")
    raise UsageError(f"--axes {axis}: no such axis; {choices(axis, AXES)}")


def _require_values(axis: str, values: Sequence[str]) -> None:
    known: dict[str, Sequence[str]] = {
        "precision": get_args(RequestedPrecision),
        "batching": BATCHING,
    }
    flag = f"--{axis.replace('_', '-')}"
    for value in values:
        if axis in known and value not in known[axis]:
            raise UsageError(f"{flag} {value}: not known; {choices(value, known[axis])}")
        is_count = value.isdecimal() and 1 <= int(value) <= MOST_INSTANCES
        if axis == "instances" and not is_count:
            raise UsageError(
                f"{flag} {value}: engines at once on one GPU, or one CPU instance, from 1 to "
                f"{MOST_INSTANCES}."
            )
    if not values:
        raise UsageError(f"{flag}: has no value; give one, or leave it out.")


def _cell(values: Mapping[str, str], candidate: Candidate) -> Cell:
    overrides: Overrides = {}
    for part in _overrides(values, candidate):
        overrides = merge(overrides, part)
    return Cell(values=tuple(values.items()), overrides=overrides)


def _overrides(values: Mapping[str, str], candidate: Candidate) -> Iterator[Overrides]:
    precision = values.get("precision")
    if precision is not None:
        yield {"engine": {"precision": precision}}
        if precision not in ("int8", "fp8", "auto"):
            yield {"engine": {"calibration": None, "sensitivity_search": None}}
    if values.get("batching") == "off":
        # One row a batch is another engine: its profiles say so.
        single = [{**profile, "batch": [1, 1, 1]} for profile in candidate.profiles]
        yield {"engine": {"optimization_profiles": single}}
        yield {"serving": {"dynamic_batching": None}}
    if "instances" in values:
        yield {"serving": {"instances_per_gpu": int(values["instances"])}}
    if "instance_type" in values:
        yield {"endpoint": {"instance_type": values["instance_type"]}}


def merge(base: Mapping[str, Any], override: Mapping[str, Any]) -> Overrides:
    """Return a document with an override merged on, key by key, as an environment's is."""
    result = dict(base)
    for key, value in override.items():
        before = result.get(key)
        both = isinstance(before, Mapping) and isinstance(value, Mapping)
        result[key] = merge(before, value) if both else value  # type: ignore[arg-type]
    return result


def _word(axis: str, value: str) -> str:
    if axis == "batching":
        return "batching" if value == "on" else "single"
    if axis == "instances":
        return f"x{value}"
    return re.sub(r"[^a-z0-9]+", "-", value.lower().removeprefix("ml."))
