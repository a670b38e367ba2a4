"""Reads a finished plan back, and refuses one that is not what was requested.

The inspector's JSON is what trtexec --exportLayerInfo writes. TensorRT 10 lists the names of inputs
and outputs under `Bindings`; a second and further optimization profile repeat them as
"name [profile 1]". TensorRT 11 lists them as objects under `I/O Tensors`, with mode, type and the
profiles' shapes. Layers are objects when the plan was built with detailed verbosity, else bare
names. Sources: files of 10.16.1.11 that NVIDIA published (tests/fixtures/published_trtexec); for 11
its migration page of IEngineInspector, and no file was seen whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from container.tensorrt.plan import Sizes
from engine_build.datasets.dataset import ATTENTION_MASK
from engine_build.errors import NetworkRefused
from engine_build.runner import Ended, Runner
from engine_build.tensorrt.trtexec import PROGRAM, Dialect, plan_version_command, run_command
from onboarding.manifest import TensorRecord
from onboarding.values import Precision, is_same_build

VERSION = re.compile(r"Plan was created with TensorRT version (\d+\.\d+\.\d+\.\d+)")
"""As printPlanVersion of trtexec says it, at v10.16 and at v11.1."""
LAYERS = "layers.json"
"""The inspector's file, beside a plan."""
INSPECTOR_LINE = "  inspector: "
"""Begins the line of a build's output with the whole of a small one."""
PROFILE = re.compile(r" \[profile (\d+)\]")
GROUP = re.compile(r"_myl(\d+)_\d+$")
"""Ends the names of what TensorRT's other compiler made together, of one profile."""
INTEGERS: dict[str, type[Any]] = {"INT64": np.int64, "INT32": np.int32}
TYPES = ("Format/Datatype", "DataType", "Datatype", "Format")
MOVING = frozenset({"Reformat", "NoOp", "Quantize", "Dequantize", "Scale"})
"""Layer types that bring INT8 values somewhere, and compute nothing with them."""


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
    plugins: tuple[Path, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """What TensorRT's engine inspector lists of a plan."""

    tensors: frozenset[str]
    """Inputs and outputs."""
    inputs: frozenset[str] | None
    """None where the file does not tell inputs from outputs: TensorRT 10."""
    profiles: int | None
    """Optimization profiles; None where the file does not tell."""
    layers: int
    """Of the first optimization profile."""
    int8_layers: int
    """Layers that read INT8 and compute. A fused kernel that only turns INT8 into float is among
    them, so this may be too many; 0 is certain where no layer is opaque.
    """
    opaque_layers: int
    """Parts of the network that TensorRT's other compiler took whole, and whose kernels the
    inspector does not list.
    """


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
    ended = runner.run(plan_version_command(path))
    version = VERSION.search(ended.output)
    if ended.code != 0 or version is None:
        raise NetworkRefused(
            f"{path.name} does not name its TensorRT ({PROGRAM} ended with code {ended.code}: "
            f"{last_error(ended)})."
        )
    layers, times = path.with_name(LAYERS), path.with_name("times.json")
    command = run_command(
        path,
        dialect,
        shapes=expected.opt_shapes,
        inputs=write_integer_inputs(expected, path.parent),
        times=times,
        layers=layers,
        version_compatible=expected.version_compatible,
        plugins=expected.plugins,
    )
    ended = runner.run(command)
    if ended.code != 0 or not layers.is_file():
        raise NetworkRefused(
            f"{path.name} compiles, but does not run at its own opt shape ({PROGRAM} {ended.how}: "
            f"{last_error(ended)})."
        )
    listed = inspection(layers.read_text(encoding="utf-8"))
    plan = InspectedPlan(tensorrt=version[1], inspection=listed, median_ms=_median(times))
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
    """Refuse a plan that is not what was requested. Raises NetworkRefused."""
    listed, profiles = plan.inspection, max(1, expected.profiles)
    inputs = {record.name for record in expected.inputs}
    tensors = inputs | {record.name for record in expected.outputs}
    if not is_same_build(expected.tensorrt, plan.tensorrt):
        reason = (
            f"it was written by TensorRT {plan.tensorrt}, and the platform serves "
            f"{expected.tensorrt}"
        )
    elif listed.tensors != tensors:
        reason = f"its inputs and outputs are {_names(listed.tensors)}, expected {_names(tensors)}"
    elif listed.inputs is not None and listed.inputs != inputs:
        reason = f"its inputs are {_names(listed.inputs)}, expected {_names(inputs)}"
    elif listed.profiles is not None and listed.profiles != profiles:
        reason = f"it has {listed.profiles} optimization profiles, expected {profiles}"
    elif listed.layers == 0:
        reason = "it has no layer"
    elif expected.precision == "int8" and listed.int8_layers == listed.opaque_layers == 0:
        reason = f"none of its {listed.layers} layers computes in INT8, though precision is int8"
    else:
        return
    raise NetworkRefused(
        f"the plan is not what was requested: {reason}; build it anew, and report this with its "
        "log."
    )


def inspection(text: str) -> Inspection:
    """Reads the inspector's JSON. Raises NetworkRefused when it is not that, or lists no layer."""
    try:
        document = json.loads(text)
        layers = _layers_of_first_profile(document["Layers"])
        detailed = [layer for layer in layers if isinstance(layer, dict)]
        is_11 = "I/O Tensors" in document
        return Inspection(
            **(_of_11(document["I/O Tensors"]) if is_11 else _of_10(document["Bindings"])),
            layers=len(layers),
            int8_layers=sum(map(_is_int8, detailed)),
            opaque_layers=sum(
                layer.get("LayerType") == "Myelin" or layer["Name"].startswith("{ForeignNode[")
                for layer in detailed
            ),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise NetworkRefused(
            f"the inspector's account of the plan cannot be read ({type(error).__name__}: {error})."
        ) from error


def last_error(ended: Ended) -> str:
    """Return the last error that trtexec wrote, or its last line."""
    lines = [line.strip() for line in (*ended.output.splitlines(), *ended.errors.splitlines())]
    errors = [line.split("[E]", 1)[1].strip() for line in lines if "[E]" in line]
    return (errors or list(filter(None, lines)) or ["no output"])[-1][:300]


def _of_10(bindings: list[str]) -> dict[str, Any]:
    last = max(map(_profile_of, bindings), default=0)
    return {
        "tensors": frozenset(name for name in bindings if _profile_of(name) == 0),
        "inputs": None,
        "profiles": None if last == 0 else last + 1,
    }


def _of_11(tensors: list[dict[str, Any]]) -> dict[str, Any]:
    inputs = [tensor for tensor in tensors if tensor["IOMode"].lower() == "input"]
    profiles = [len(tensor["ProfileInfo"]) for tensor in inputs if tensor.get("ProfileInfo")]
    return {
        "tensors": frozenset(tensor["Name"] for tensor in tensors),
        "inputs": frozenset(tensor["Name"] for tensor in inputs),
        "profiles": max(profiles, default=None),
    }


def _is_int8(layer: dict[str, Any]) -> bool:
    if layer.get("LayerType") in MOVING or layer.get("ParameterType") in MOVING:
        return False
    weights = layer.get("Weights")
    types = [weights.get("Type", "")] if isinstance(weights, dict) else []
    for tensor in layer.get("Inputs", []):
        types += [str(tensor[name]) for name in TYPES if name in tensor]
    is_read = any("int8" in kind.lower().split() for kind in types)
    return is_read or "i8i8" in layer.get("TacticName", "")


def _layers_of_first_profile(layers: list[Any]) -> list[Any]:
    """Return the layers that are of no later profile.

    TensorRT 10.16 names the profile in a layer's own name, in those of its tensors alone, or in
    those of another layer of its group. Source: tests/fixtures/published_trtexec.
    """
    profiles = [max(map(_profile_of, _names_of(layer)), default=0) for layer in layers]
    groups = [GROUP.search(_layer_name(layer)) for layer in layers]
    later = {group[1] for group, profile in zip(groups, profiles, strict=True) if group and profile}
    return [
        layer
        for layer, group, profile in zip(layers, groups, profiles, strict=True)
        if profile == 0 and not (group and group[1] in later)
    ]


def _names_of(layer: Any) -> list[str]:
    tensors = (
        [*layer.get("Inputs", ()), *layer.get("Outputs", ())] if isinstance(layer, dict) else []
    )
    return [_layer_name(layer), *(str(tensor.get("Name", "")) for tensor in tensors)]


def _layer_name(layer: Any) -> str:
    return str(layer["Name"]) if isinstance(layer, dict) else str(layer)


def _profile_of(name: str) -> int:
    match = PROFILE.search(name)
    return 0 if match is None else int(match[1])


def _median(times: Path) -> float | None:
    try:
        rows = json.loads(times.read_text(encoding="utf-8"))
        latencies = sorted(float(row["latencyMs"]) for row in rows)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return latencies[len(latencies) // 2] if latencies else None


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
