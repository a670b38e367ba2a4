"""A finished plan, read back: what it is must be what was asked for, or it is refused in a
sentence.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from engine_build.datasets.feed import ATTENTION_MASK
from engine_build.errors import NetworkRefused
from engine_build.runner import Ended, Runner
from engine_build.tensorrt.host import same_tensorrt
from engine_build.tensorrt.inspection import Inspection, inspection
from engine_build.tensorrt.trtexec import (
    PROGRAM,
    Dialect,
    Measurement,
    Sizes,
    measurement,
    plan_version,
)
from onboarding.manifest import TensorRecord
from onboarding.values import Precision

VERSION = re.compile(r"Plan was created with TensorRT version (\d+\.\d+\.\d+\.\d+)")
"""As printPlanVersion of trtexec says it, at v10.16 and at v11.1."""
INTEGERS: dict[str, type[Any]] = {"INT64": np.int64, "INT32": np.int32}


@dataclass(frozen=True, kw_only=True)
class Asked:
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
class ReadBack:
    """What a plan is."""

    tensorrt: str
    inspection: Inspection
    median_ms: float | None
    """Of trtexec's own run at the opt shapes: GPU and queue, no copies, no CUDA graph; None when it
    wrote down no time.
    """


def read_back(plan: Path, asked: Asked, dialect: Dialect, runner: Runner) -> ReadBack:
    """Asks trtexec who wrote the plan, runs it once and inspects it. Raises NetworkRefused."""
    tensorrt = _version(plan, runner.run(plan_version(plan)))
    layers, times = plan.with_name("layers.json"), plan.with_name("times.json")
    inputs = write_indices(asked, plan.parent)
    wish = Measurement(
        plan=plan,
        shapes=asked.opt_shapes,
        version_compatible=asked.version_compatible,
        cuda_graph=False,
        inputs=inputs,
        layers=layers,
        times=times,
        warm_up_ms=100,
        seconds=1,
    )
    ended = runner.run(measurement(wish, dialect))
    if ended.code != 0 or not layers.is_file():
        raise NetworkRefused(
            f"{plan.name} compiles, but does not run at its own opt shape ({PROGRAM} {ended.how}: {said(ended)})."
        )
    found = ReadBack(
        tensorrt=tensorrt,
        inspection=inspection(layers.read_text(encoding="utf-8")),
        median_ms=_median(times),
    )
    check(found, asked)
    return found


def write_indices(asked: Asked, folder: Path) -> tuple[tuple[str, Path], ...]:
    """A file for each integer input: zeros, which every table of embeddings has, and an attention
    mask of ones.
    """
    shapes = dict(asked.opt_shapes)
    written = []
    for index, record in enumerate(asked.inputs):
        if record.datatype in INTEGERS:
            path = folder / f"input-{index}.bin"
            value = int(record.name == ATTENTION_MASK)
            np.full(
                shapes.get(record.name, record.shape), value, dtype=INTEGERS[record.datatype]
            ).tofile(path)
            written.append((record.name, path))
    return tuple(written)


def check(found: ReadBack, asked: Asked) -> None:
    """Refuses a plan that is not what was asked for. Raises NetworkRefused."""
    told = found.inspection
    if not same_tensorrt(asked.tensorrt, found.tensorrt):
        _refuse(
            f"it was written by TensorRT {found.tensorrt}, and the platform serves {asked.tensorrt}"
        )
    names = (*asked.input_names, *asked.output_names)
    if set(told.tensors) != set(names):
        _refuse(
            f"its inputs and outputs are {_listed(told.tensors)}, asked for were {_listed(names)}"
        )
    if told.inputs is not None and set(told.inputs) != set(asked.input_names):
        _refuse(
            f"its inputs are {_listed(told.inputs)}, asked for were {_listed(asked.input_names)}"
        )
    if told.profiles is not None and told.profiles != max(1, asked.profiles):
        _refuse(
            f"it has {told.profiles} optimization profiles, asked for were {max(1, asked.profiles)}"
        )
    if told.layers == 0:
        _refuse("it has no layer")
    if asked.precision == "int8" and told.int8_layers == 0 and told.opaque_layers == 0:
        _refuse(
            f"none of its {told.layers} layers computes in INT8, though precision int8 was asked for"
        )


def said(ended: Ended) -> str:
    """The last error that trtexec wrote, or its last line."""
    lines = [
        line.strip() for line in f"{ended.output}\n{ended.errors}".splitlines() if line.strip()
    ]
    errors = [line.split("[E]", 1)[1].strip() for line in lines if "[E]" in line]
    return (errors or lines or ["it said nothing"])[-1][:300]


def _version(plan: Path, ended: Ended) -> str:
    found = VERSION.search(ended.output)
    if ended.code != 0 or found is None:
        raise NetworkRefused(
            f"{plan.name} does not name its TensorRT ({PROGRAM} ended with code {ended.code}: {said(ended)})."
        )
    return found[1]


def _median(times: Path) -> float | None:
    try:
        latencies = sorted(
            float(row["latencyMs"]) for row in json.loads(times.read_text(encoding="utf-8"))
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return latencies[len(latencies) // 2] if latencies else None


def _refuse(reason: str) -> None:
    raise NetworkRefused(
        f"the plan is not what was asked for: {reason}; build it anew, and report this with its log."
    )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(sorted(names))
