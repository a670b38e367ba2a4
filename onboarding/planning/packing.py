"""Models and the room they share: how many fit at once, and how few rooms hold them all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Held:
    """One model in memory: what it takes, in MiB, and the seconds until it is there again after an
    eviction.
    """

    name: str
    mib: float
    load_seconds: float


def together(models: Sequence[Held], room_mib: float) -> tuple[Held, ...]:
    """The most models that fit at once: the smallest ones."""
    kept: list[Held] = []
    for each in sorted(models, key=lambda model: (model.mib, model.name)):
        if taken([*kept, each]) <= room_mib:
            kept.append(each)
    return tuple(kept)


def whichever(models: Sequence[Held], room_mib: float) -> int:
    """How many models are in memory at least, once so many were asked: as many of the largest ones
    as fit.
    """
    largest_first = sorted(models, key=lambda model: (-model.mib, model.name))
    return max(
        (count for count in range(len(models) + 1) if taken(largest_first[:count]) <= room_mib),
        default=0,
    )


def packed(models: Sequence[Held], room_mib: float) -> tuple[tuple[Held, ...], ...]:
    """Rooms that hold every model, by first-fit decreasing. Raises ValueError for a model that is
    larger than a room.

    At most 11/9 of the fewest possible and one (Johnson). Which models share a room says nothing of
    which are asked together.
    """
    rooms: list[list[Held]] = []
    for each in sorted(models, key=lambda model: (-model.mib, model.name)):
        if each.mib > room_mib:
            raise ValueError(f"{each.name} takes {each.mib:g} MiB of {room_mib:g}")
        free = next((room for room in rooms if taken([*room, each]) <= room_mib), None)
        if free is None:
            rooms.append([each])
        else:
            free.append(each)
    return tuple(tuple(room) for room in rooms)


def taken(models: Sequence[Held]) -> float:
    """What models take together, in MiB: the same in whatever order."""
    return math.fsum(each.mib for each in models)
