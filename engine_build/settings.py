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
    """NVIDIA's image found that its own CUDA driver libraries run on the host's driver, and put
    them first.
    """
    benchmark_seconds: float = 10.0
    """For all shapes together; one round of each is never left out."""


def settings(environment: Mapping[str, str]) -> Settings:
    """The settings of a process environment; an empty variable counts as unset.

    Raises InputRefused.
    """

    def value(*names: str) -> str | None:
        return next((environment[name] for name in names if environment.get(name)), None)

    return Settings(
        source_commit=value("ROUNDHOUSE_SOURCE_COMMIT"),
        image=value("ROUNDHOUSE_IMAGE", "CODEBUILD_BUILD_IMAGE"),
        forward_compatible=value("_CUDA_COMPAT_STATUS") == "CUDA Driver OK",
        benchmark_seconds=_seconds(value("ROUNDHOUSE_BENCHMARK_SECONDS")),
    )


def _seconds(text: str | None) -> float:
    try:
        seconds = Settings.benchmark_seconds if text is None else float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise InputRefused(
            f"ROUNDHOUSE_BENCHMARK_SECONDS is {text!r}; give a number of seconds, 0 or more, such "
            "as 10."
        )
    return seconds
