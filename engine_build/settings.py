"""What the process environment says about a build; read once, here."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from engine_build.errors import InputRefused


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Facts that only the machine that starts a build knows."""

    source_commit: str | None = None
    image: str | None = None
    forward_compatible: bool = False
    """NVIDIA's image uses its own CUDA driver libraries, which run on the host's driver."""
    benchmark_seconds: float = 10.0
    """For all shapes together; one round of each is never left out."""


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
    return Settings(
        source_commit=variables.get("ROUNDHOUSE_SOURCE_COMMIT"),
        image=image,
        forward_compatible=variables.get("_CUDA_COMPAT_STATUS") == "CUDA Driver OK",
        benchmark_seconds=seconds,
    )
