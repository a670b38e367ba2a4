"""The sizes that a plan takes: one range an input and optimization profile, and which profile suits
some shapes best.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Sizes = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Range:
    """(min, opt, max) sizes of one input in one profile."""

    smallest: Sizes
    opt: Sizes
    largest: Sizes

    def takes(self, shape: Sequence[int]) -> bool:
        """True when every axis is within."""
        return len(shape) == len(self.smallest) and all(
            low <= size <= high
            for low, size, high in zip(self.smallest, shape, self.largest, strict=True)
        )


Profile = Mapping[str, Range]
Shapes = Mapping[str, Sizes]


def taking(shapes: Shapes, profiles: Sequence[Profile]) -> list[int]:
    """The profiles that take every shape."""
    return [
        index
        for index, profile in enumerate(profiles)
        if all(ranges.takes(shapes[name]) for name, ranges in profile.items())
    ]


def nearest(shapes: Shapes, profiles: Sequence[Profile]) -> int | None:
    """The profile that takes the shapes and is tuned nearest to them; None where none takes them."""
    return min(
        taking(shapes, profiles), key=lambda index: _distance(shapes, profiles[index]), default=None
    )


def allowed(profiles: Sequence[Profile]) -> str:
    """The ranges in words."""
    return "; ".join(
        ", ".join(
            f"{name} {times(each.smallest)} to {times(each.largest)}"
            for name, each in profile.items()
        )
        for profile in profiles
    )


def times(sizes: Sequence[int]) -> str:
    """Sizes in words: 4x16."""
    return "x".join(map(str, sizes))


def _distance(shapes: Shapes, profile: Profile) -> int:
    return sum(
        abs(math.prod(shapes[name]) - math.prod(ranges.opt)) for name, ranges in profile.items()
    )
