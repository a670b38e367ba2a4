"""What NVIDIA's programs printed in a build's output, read by the build's own parsers.

The builder prints each command as `$ ...`, lines of its output as `| ...`, and the inspector's file
of a small plan on one line. CodeBuild and CloudWatch may put times before them.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from engine_build.errors import BuildError
from engine_build.tensorrt.host import BANNER, parse_host
from engine_build.tensorrt.plan import INSPECTOR_LINE, VERSION, Inspection, inspection

SHOWN = re.compile(r"^.*?  \| ?(?P<text>.*)$")
LATENCY = re.compile(r"\[I\] Latency: .*median = (?P<median>[0-9.]+) ms")
PYTHON = re.compile(r"Python (?P<version>3\.[0-9]+)")
KNOWN_LAYER_KEYS = frozenset({"Name", "LayerType", "Inputs", "Outputs"})
"""What our reading of a layer rests on, where the plan's verbosity is detailed."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What was read of one kind of output: the text as it came, and why it could not be read."""

    text: str
    fault: str | None = None
    value: Any = None


def shown_output(log: str) -> str:
    """Return the output of NVIDIA's programs in a build's log, as it was."""
    matches = (SHOWN.match(line) for line in log.splitlines())
    return "\n".join(match["text"] for match in matches if match is not None)


def read_banner(output: str) -> Reading:
    """Return trtexec's version, such as 10.16.1.11, from its first line."""
    line = _first(output, "RUNNING TensorRT.trtexec")
    match = BANNER.search(line)
    if match is None:
        return Reading(text=line, fault="the banner has another form" if line else "no banner")
    version, build = int(match[1]), match[2]
    parts = (version // 10000, version // 100 % 100, version % 100, build)
    return Reading(text=line, value=".".join(map(str, parts)))


def read_plan_version(output: str) -> Reading:
    """Return the TensorRT that `--getPlanVersionOnly` names."""
    line = _first(output, "Plan was created with")
    match = VERSION.search(line)
    if match is None:
        return Reading(text=line, fault="another form" if line else "no line names it")
    return Reading(text=line, value=match[1])


def read_host(output: str) -> Reading:
    """Return the GPU, driver and compute capability that nvidia-smi prints as CSV."""
    line = next((line for line in output.splitlines() if line.count(",") == 2), "")
    try:
        return Reading(text=line, value=parse_host(line))
    except BuildError as error:
        return Reading(text=line, fault=str(error))


def read_median(output: str) -> Reading:
    """Return the median latency, in milliseconds, of trtexec's own summary."""
    line = _first(output, "[I] Latency:")
    match = LATENCY.search(line)
    if match is None:
        return Reading(text=line, fault="another form" if line else "no summary")
    return Reading(text=line, value=float(match["median"]))


def inspector_texts(log: str) -> tuple[str, ...]:
    """Return the inspector's file of every plan in a build's log."""
    mark = INSPECTOR_LINE.strip() + " {"
    lines = (line for line in log.splitlines() if mark in line)
    return tuple(line[line.index(mark) + len(mark) - 1 :] for line in lines)


def read_inspection(text: str) -> Reading:
    """Return what the build's parser reads of the inspector's file."""
    try:
        listed: Inspection = inspection(text)
    except BuildError as error:
        return Reading(text=text, fault=str(error))
    return Reading(text=text, value=listed)


def layer_keys(text: str) -> frozenset[str]:
    """Return the keys that every detailed layer of the inspector's file has; empty: bare names."""
    layers = [layer for layer in json.loads(text)["Layers"] if isinstance(layer, dict)]
    return (
        frozenset.intersection(*(frozenset(layer) for layer in layers)) if layers else frozenset()
    )


def _first(output: str, part: str) -> str:
    return next((line for line in output.splitlines() if part in line), "")
