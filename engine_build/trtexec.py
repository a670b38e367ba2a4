"""Command lines of trtexec, as pure functions: dialect 10 and dialect 11 are told apart, and what one lacks is refused by name.

Flags follow the public option parser of TensorRT, samples/common/sampleOptions.cpp, at v10.16 and v11.1. Never executed where
this repository was made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from engine_build.errors import InputRefused
from engine_build.runner import Command
from onboarding.values import Precision

Dialect = Literal[10, 11]
COMPILE_TIMEOUT_SECONDS = 3600
PRECISION_FLAGS: dict[Precision, tuple[str, ...]] = {
    "fp32": (),
    "fp16": ("--fp16",),
    "bf16": ("--bf16",),
    "int8": ("--int8", "--fp16"),
    "fp8": ("--fp8", "--fp16"),
}


@dataclass(frozen=True, kw_only=True)
class Shapes:
    """One optimization profile: (min, opt, max) of the batch and, for text, of the sequence, for every input."""

    inputs: tuple[str, ...]
    batch: tuple[int, int, int]
    sequence: tuple[int, int, int] | None = None


@dataclass(frozen=True, kw_only=True)
class Request:
    """One compilation."""

    network: Path
    plan: Path
    precision: Precision
    profiles: tuple[Shapes, ...]
    strongly_typed: bool = False
    """True: the network carries its types, such as Q/DQ nodes; False: trtexec chooses within `precision`."""
    timing_cache: Path | None = None
    workspace_mib: int | None = None


def command(request: Request, dialect: Dialect) -> Command:
    """The command that compiles a network. Raises InputRefused for what the dialect has no flag for."""
    argv = (
        "trtexec",
        f"--onnx={request.network}",
        f"--saveEngine={request.plan}",
        *_typing(request, dialect),
        *_profiles(request.profiles),
        *([] if request.timing_cache is None else [f"--timingCacheFile={request.timing_cache}"]),
        *([] if request.workspace_mib is None else [f"--memPoolSize=workspace:{request.workspace_mib}M"]),
        "--skipInference",
    )
    return Command(argv=argv, timeout_seconds=COMPILE_TIMEOUT_SECONDS)


def _typing(request: Request, dialect: Dialect) -> Sequence[str]:
    flags = PRECISION_FLAGS[request.precision]
    if dialect == 11:
        # Every network is strongly typed there, and --stronglyTyped does nothing.
        if not request.strongly_typed and flags:
            raise InputRefused(
                f"trtexec of TensorRT 11 has no {' and no '.join(flags)}: precision {request.precision} must be in the network "
                "itself; allowed without it: fp32."
            )
        return ()
    return ("--stronglyTyped",) if request.strongly_typed else flags


def _profiles(profiles: Sequence[Shapes]) -> Sequence[str]:
    several = len(profiles) > 1
    return [flag for index, shapes in enumerate(profiles) for flag in _profile(index, shapes, several=several)]


def _profile(index: int, shapes: Shapes, *, several: bool) -> Sequence[str]:
    opening = [f"--profile={index}"] if several else []
    return [*opening, *(f"--{kind}Shapes={_sizes(shapes, place)}" for place, kind in enumerate(("min", "opt", "max")))]


def _sizes(shapes: Shapes, place: int) -> str:
    size = str(shapes.batch[place]) if shapes.sequence is None else f"{shapes.batch[place]}x{shapes.sequence[place]}"
    return ",".join(f"{name}:{size}" for name in shapes.inputs)
