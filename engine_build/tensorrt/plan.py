"""Reads a finished plan back, and refuses one that is not what was asked for."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from engine_build.datasets.dataset import ATTENTION_MASK
from engine_build.errors import NetworkRefused
from engine_build.runner import Ended, Runner
from engine_build.tensorrt.host import same_tensorrt
from engine_build.tensorrt.inspection import Inspection, inspection
from engine_build.tensorrt.trtexec import (
    PROGRAM,
    Dialect,
    RunOptions,
    Sizes,
    plan_version_command,
    run_command,
)
from onboarding.manifest import TensorRecord
from onboarding.values import Precision

VERSION = re.compile(r"Plan was created with TensorRT version (\d+\.\d+\.\d+\.\d+)")
"""As printPlanVersion of trtexec says it, at v10.16 and at v11.1."""
INTEGERS: dict[str, type[Any]] = {"INT64": np.int64, "INT32": np.int32}


@dataclass(frozen=True, kw_only=True)
class ExpectedPlan:
    """What a plan must be."""

    precision: Precision
    tensorrt: str
    """The platform's; its build number may be missing."""
    inputs: tuple[TensorRecord, ...]
    outputs: tuple[TensorRecord, ...]
    profiles: int
    opt_shapes: tuple[tuple[str, Sizes], ...]
    """Of the first profile; the plan is run at them."""
    version_compatible: bool = False

    @property
    def input_names(self) -> tuple[str, ...]:
        """In the network's order."""
        return tuple(record.name for record in self.inputs)

    @property
    def output_names(self) -> tuple[str, ...]:
        """In the network's order."""
        return tuple(record.name for record in self.outputs)


@dataclass(frozen=True, kw_only=True)
class InspectedPlan:
    """What a plan is."""

    tensorrt: str
    inspection: Inspection
    median_ms: float | None
    """Of trtexec's own run at the opt shapes: GPU and queue, no copies, no CUDA graph.

    None when it wrote down no time.
    """


def inspect_plan(
    path: Path, expected: ExpectedPlan, dialect: Dialect, runner: Runner
) -> InspectedPlan:
    """Read a plan's TensorRT version, run it once and inspect it. Raises NetworkRefused."""
    tensorrt = _version(path, runner.run(plan_version_command(path)))
    layers, times = path.with_name("layers.json"), path.with_name("times.json")
    options = RunOptions(
        plan=path,
        shapes=expected.opt_shapes,
        version_compatible=expected.version_compatible,
        cuda_graph=False,
        inputs=write_integer_inputs(expected, path.parent),
        layers=layers,
        times=times,
        warm_up_ms=100,
        seconds=1,
    )
    ended = runner.run(run_command(options, dialect))
    if ended.code != 0 or not layers.is_file():
        raise NetworkRefused(
            f"{path.name} compiles, but does not run at its own opt shape ({PROGRAM} {ended.how}: "
            f"{last_error(ended)})."
        )
    plan = InspectedPlan(
        tensorrt=tensorrt,
        inspection=inspection(layers.read_text(encoding="utf-8")),
        median_ms=_median(times),
    )
    check_plan(plan, expected)
    return plan


def write_integer_inputs(expected: ExpectedPlan, folder: Path) -> tuple[tuple[str, Path], ...]:
    """Write a file for each integer input: zeros, and attention masks of ones.

    Every table of embeddings has a row 0.
    """
    shapes = dict(expected.opt_shapes)
    written = []
    for index, record in enumerate(expected.inputs):
        if record.datatype in INTEGERS:
            path = folder / f"input-{index}.bin"
            shape, kind = shapes.get(record.name, record.shape), INTEGERS[record.datatype]
            np.full(shape, int(record.name == ATTENTION_MASK), dtype=kind).tofile(path)
            written.append((record.name, path))
    return tuple(written)


def check_plan(plan: InspectedPlan, expected: ExpectedPlan) -> None:
    """Refuse a plan that is not what was asked for. Raises NetworkRefused."""
    layers, profiles = plan.inspection, max(1, expected.profiles)
    names = (*expected.input_names, *expected.output_names)
    if not same_tensorrt(expected.tensorrt, plan.tensorrt):
        reason = (
            f"it was written by TensorRT {plan.tensorrt}, and the platform serves "
            f"{expected.tensorrt}"
        )
    elif set(layers.tensors) != set(names):
        reason = (
            f"its inputs and outputs are {_join_names(layers.tensors)}, asked for were "
            f"{_join_names(names)}"
        )
    elif layers.inputs is not None and set(layers.inputs) != set(expected.input_names):
        reason = (
            f"its inputs are {_join_names(layers.inputs)}, "
            f"asked for were {_join_names(expected.input_names)}"
        )
    elif layers.profiles is not None and layers.profiles != profiles:
        reason = f"it has {layers.profiles} optimization profiles, asked for were {profiles}"
    elif layers.layers == 0:
        reason = "it has no layer"
    elif expected.precision == "int8" and layers.int8_layers == layers.opaque_layers == 0:
        reason = (
            f"none of its {layers.layers} layers computes in INT8, though precision int8 was "
            "asked for"
        )
    else:
        return
    raise NetworkRefused(
        f"the plan is not what was asked for: {reason}; build it anew, and report this with its "
        "log."
    )


def last_error(ended: Ended) -> str:
    """Return the last error that trtexec wrote, or its last line."""
    lines = [
        line.strip() for line in f"{ended.output}\n{ended.errors}".splitlines() if line.strip()
    ]
    errors = [line.split("[E]", 1)[1].strip() for line in lines if "[E]" in line]
    return (errors or lines or ["no output"])[-1][:300]


def _version(plan: Path, ended: Ended) -> str:
    match = VERSION.search(ended.output)
    if ended.code != 0 or match is None:
        raise NetworkRefused(
            f"{plan.name} does not name its TensorRT ({PROGRAM} ended with code {ended.code}: "
            f"{last_error(ended)})."
        )
    return match[1]


def _median(times: Path) -> float | None:
    try:
        rows = json.loads(times.read_text(encoding="utf-8"))
        latencies = sorted(float(row["latencyMs"]) for row in rows)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return latencies[len(latencies) // 2] if latencies else None


def _join_names(names: Sequence[str]) -> str:
    return ", ".join(sorted(names))
