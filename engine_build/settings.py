"""What the process environment says about a build; read once, here."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass

from engine_build.errors import InputRefused

VLLM_PYTHON = "ROUNDHOUSE_VLLM_PYTHON"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Facts that only the machine that starts a build knows."""

    source_commit: str | None = None
    image: str | None = None
    forward_compatible: bool = False
    """NVIDIA's image uses its own CUDA driver libraries, which run on the host's driver."""
    benchmark_seconds: float = 10.0
    """For all shapes together; one round of each is never left out."""
    vllm_python: str | None = None
    """An interpreter with vLLM, which measures text generators; None: they are not measured."""
    speed_on_cpu: bool = False
    """Text generators are measured on a machine without a GPU too, as tests do."""


def settings(environment: Mapping[str, str]) -> Settings:
    """Read a process environment; an empty variable counts as unset. Raises InputRefused."""
    variables = {name: value for name, value in environment.items() if value}
    image = variables.get("ROUNDHOUSE_IMAGE", variables.get("CODEBUILD_BUILD_IMAGE"))
    text = variables.get("ROUNDHOUSE_BENCHMARK_SECONDS")
    try:
        seconds = Settings.benchmark_seconds if text is None else float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise InputRefused(
            f"ROUNDHOUSE_BENCHMARK_SECONDS is {text!r}; give a number of seconds, 0 or more, such "
            "as 10."
        )
    python = variables.get(VLLM_PYTHON)
    if python is not None and not os.access(python, os.X_OK):
        raise InputRefused(
            f"{VLLM_PYTHON} is {python}, which is no program of this machine; name the interpreter "
            "of an environment with vLLM, or unset it."
        )
    return Settings(
        source_commit=variables.get("ROUNDHOUSE_SOURCE_COMMIT"),
        image=image,
        forward_compatible=variables.get("_CUDA_COMPAT_STATUS") == "CUDA Driver OK",
        benchmark_seconds=seconds,
        vllm_python=python,
        speed_on_cpu=variables.get("ROUNDHOUSE_SPEED_ON_CPU") == "true",
    )
