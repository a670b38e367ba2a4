"""Options of an analysis of lengths."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class PadAs(StrEnum):
    """Whose padding is counted."""

    longest = "longest"
    triton = "triton"
    python = "python"


class TimedBy(StrEnum):
    """Where milliseconds come from."""

    auto = "auto"
    engine = "engine"
    endpoint = "endpoint"
    lock = "lock"


@dataclass(frozen=True, kw_only=True)
class LengthsOptions:
    """What is asked for; `pad_as` None: as the environment's server pads."""

    requests: Path
    most_profiles: int
    timed_by: TimedBy
    pad_as: PadAs | None
    seconds: float
    write_command: str
