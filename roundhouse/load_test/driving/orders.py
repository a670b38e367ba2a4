"""What the command and its load processes say to each other: pickled values in length-prefixed
frames, over pipes.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from roundhouse.load_test.requests.destination import Body, Destination
from roundhouse.load_test.traffic import Arrivals, Phase

LENGTH = struct.Struct("<I")


@dataclass(frozen=True, kw_only=True)
class Job:
    """What one of `workers` load processes needs to know before its first phase."""

    destination: Destination
    bodies: tuple[Body, ...]
    arrivals: Arrivals
    seed: int
    most_connections: int
    timeout_seconds: float
    drain_seconds: float
    expected_interval_seconds: float | None
    """Of a closed loop: how often a user would ask if answers came at once; None: not known."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """Run one phase from a moment of the monotonic clock on, as one of several."""

    number: int
    phase: Phase
    begin: float
    worker: int
    workers: int


@dataclass(frozen=True, kw_only=True)
class Halt:
    """End the phase now: send nothing more; what is under way is dropped and is no fault."""


@dataclass(frozen=True, kw_only=True)
class Second:
    """What one load process measured in about a second; histograms are encoded, an empty one is
    b"".
    """

    number: int
    second: int
    worker: int
    users: int
    intended: int
    sent: int
    answered: int
    faults: Mapping[str, int]
    in_flight: int
    waiting: int
    """Requests whose time has come and that wait for a connection."""
    reconnected: int
    cpu_share: float
    latency: bytes = b""
    service: bytes = b""
    lag: bytes = b""
    corrected: bytes = b""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """A phase is over in one load process; `dropped` requests were under way when it was halted."""

    number: int
    dropped: int


@dataclass(frozen=True, kw_only=True)
class Ready:
    """A load process has read its job."""


@dataclass(kw_only=True)
class Frames:
    """Cuts a stream of bytes into the values that were put into it."""

    kept: bytearray = field(default_factory=bytearray)

    def fed(self, data: bytes) -> Iterator[Any]:
        """The values that these bytes complete."""
        self.kept += data
        while len(self.kept) >= LENGTH.size:
            end = LENGTH.size + LENGTH.unpack_from(self.kept)[0]
            if len(self.kept) < end:
                return
            value = bytes(self.kept[LENGTH.size : end])
            del self.kept[:end]
            # Both ends are this program; nothing else can write to the pipe.
            yield pickle.loads(value)


def framed(value: object) -> bytes:
    """A value as one frame."""
    data = pickle.dumps(value)
    return LENGTH.pack(len(data)) + data
