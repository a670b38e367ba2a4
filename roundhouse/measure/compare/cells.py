"""The grid of a comparison: its axes, and its cells as overrides of one model file. Pure."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from onboarding.values import (
    BASELINE_RUNTIMES,
    PYTORCH_RUNTIMES,
    EngineRuntime,
    RequestedPrecision,
    Runtime,
)
from roundhouse.errors import UsageError
from roundhouse.text import choices

Overrides = dict[str, Any]
AXES = ("runtime", "precision", "batching", "instances", "instance_type")
DEFAULT_AXES = "precision,batching,instances"
MOST_CELLS = 64
"""Endpoints, each of which is built, deployed and loaded."""
BATCHING = ("off", "on")
GPU_RUNTIMES: tuple[Runtime, ...] = ("tensorrt", "onnxruntime-cuda", "pytorch")
CPU_RUNTIMES: tuple[Runtime, ...] = ("onnxruntime", "pytorch")
PYTHON_SERVER: Overrides = {
    "server": "python",
    "response_cache": False,
    "dynamic_batching": {"preferred_batch_sizes": [], "max_queue_delay_us": 0},
}
"""What baselines are served with, whatever the file says of Triton."""
DEFAULT_INSTANCES = ("1", "2")
MOST_INSTANCES = 128
"""Engines at once on one GPU, or one CPU instance."""


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


def cells(axes: Mapping[str, Sequence[str]]) -> tuple[Cell, ...]:
    """Return the cells of a grid, first axis outermost. Raises UsageError for none or too many."""
    for axis, values in axes.items():
        _require_axis(axis)
        _require_values(axis, values)
    kept = {name: tuple(dict.fromkeys(axes[name])) for name in AXES if name in axes}
    count = math.prod(map(len, kept.values()))
    if count > MOST_CELLS:
        raise UsageError(
            f"the grid has {count:,} cells, and each is built, deployed and loaded; at most "
            f"{MOST_CELLS} are compared: leave out values or an axis."
        )
    grid = [dict(zip(kept, values, strict=True)) for values in itertools.product(*kept.values())]
    return tuple(Cell(values=tuple(values.items()), overrides=overrides(values)) for values in grid)


def default_values(axis: str, *, is_gpu: bool, has_calibration: bool) -> tuple[str, ...]:
    """Return what an axis varies over where no values are given. Raises UsageError."""
    if axis == "instance_type":
        raise UsageError("--axes instance_type: give the types, instance_type=TYPE,TYPE.")
    high = "fp16" if is_gpu else "fp32"
    values: Mapping[str, tuple[str, ...]] = {
        "runtime": GPU_RUNTIMES if is_gpu else CPU_RUNTIMES,
        "precision": (high, "int8") if has_calibration else (high,),
        "batching": BATCHING,
        "instances": DEFAULT_INSTANCES,
    }
    _require_axis(axis)
    return values[axis]


def _require_axis(axis: str) -> None:
    if axis not in AXES:
        raise UsageError(f"--axes {axis}: no such axis; {choices(axis, AXES)}")


def parse_axes(
    texts: Sequence[str], *, is_gpu: bool, has_calibration: bool
) -> dict[str, list[str]]:
    """Return the values of each axis of `precision,instances` or `precision=fp16,int8`.

    Raises UsageError for none, and for an axis that needs values and has none.
    """
    chosen: dict[str, list[str]] = {}
    for text in texts:
        named, sign, values = text.partition("=")
        for axis in (word.strip().replace("-", "_") for word in named.split(",") if word.strip()):
            listed = [value.strip() for value in values.split(",") if value.strip()]
            if not sign:
                listed = [*default_values(axis, is_gpu=is_gpu, has_calibration=has_calibration)]
            chosen[axis] = listed
    if not chosen:
        raise UsageError("--axes: names nothing that varies; give one, such as precision.")
    return chosen


def overrides(values: Mapping[str, str]) -> Overrides:
    """Return what values of axes override in the model file."""
    result: Overrides = {}
    for part in _overrides(values):
        result = merge(result, part)
    return result


def _require_values(axis: str, values: Sequence[str]) -> None:
    known: dict[str, Sequence[str]] = {
        "runtime": get_args(EngineRuntime),
        "precision": get_args(RequestedPrecision),
        "batching": BATCHING,
    }
    flag = f"--axes {axis}"
    for value in values:
        if axis in known and value not in known[axis]:
            raise UsageError(f"{flag}={value}: not known; {choices(value, known[axis])}")
        is_count = value.isdecimal() and 1 <= int(value) <= MOST_INSTANCES
        if axis == "instances" and not is_count:
            raise UsageError(
                f"{flag}={value}: engines at once on one GPU, or one CPU instance, from 1 to "
                f"{MOST_INSTANCES}."
            )
    if not values:
        raise UsageError(f"{flag}: has no value; give one, or leave it out.")


def _overrides(values: Mapping[str, str]) -> Iterator[Overrides]:
    yield from _engine_overrides(values.get("runtime"), values.get("precision"))
    if values.get("batching") == "off":
        # The same plan, served one row at a time.
        batching = {"max_batch_size": 1, "preferred_batch_sizes": None, "max_queue_delay_us": None}
        yield {"serving": {"dynamic_batching": batching}}
    if "instances" in values:
        yield {"serving": {"instances_per_gpu": int(values["instances"])}}
    if "instance_type" in values:
        yield {"endpoint": {"instance_type": values["instance_type"]}}


def _engine_overrides(runtime: str | None, precision: str | None) -> Iterator[Overrides]:
    if runtime is not None:
        yield {"serving": {"runtime": runtime}}
    if runtime in BASELINE_RUNTIMES:
        yield {"serving": PYTHON_SERVER}
    precision = _own_precision(runtime) if precision is None else precision
    if precision is not None:
        yield {"engine": {"precision": precision}}
        if precision not in ("int8", "fp8", "auto"):
            yield {"engine": {"calibration": None, "sensitivity_search": None}}


def _own_precision(runtime: str | None) -> str | None:
    """Return what a runtime computes in where the axis of precisions leaves it open."""
    if runtime in PYTORCH_RUNTIMES:
        return "fp32"
    return "fp16" if runtime in BASELINE_RUNTIMES else None


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
