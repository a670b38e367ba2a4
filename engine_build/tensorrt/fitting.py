"""Which optimization profile a feed fits, and how a feed that none takes is made to fit: pure
arithmetic on shapes.

A plan refuses what is smaller than its smallest profile as well as what is larger, and a server
meets both, so a feed is filled
up: rows by repeating the last one, whose answers are thrown away; tokens by zeros, which an
attention mask of zeros hides.
A batch that is too large is cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from container.tensorrt.ranges import Profile, Range, allowed, nearest, taking, times
from engine_build.errors import InputRefused
from engine_build.samples.feed import ATTENTION_MASK, Array, Feed


def parts(feed: Feed, profiles: Sequence[Profile]) -> Iterator[tuple[Feed, int]]:
    """The feed in parts that some profile takes, each with the number of its own rows.

    Raises InputRefused.
    """
    rows = len(next(iter(feed.values())))
    most = max(
        (_most_rows(profile) for profile in profiles if _takes_rows(feed, profile)), default=rows
    )
    for begin in range(0, rows, most):
        part = {name: values[begin : begin + most] for name, values in feed.items()}
        yield filled(part, profiles), min(most, rows - begin)


def filled(feed: Feed, profiles: Sequence[Profile]) -> Feed:
    """The feed itself where a profile takes it, or else filled up to the smallest that does.

    Raises InputRefused.
    """
    if taking(_shapes(feed), profiles):
        return feed
    grown = [
        {name: _grown(values, profile[name], feed) for name, values in feed.items()}
        for profile in profiles
    ]
    fitting = [each for each in grown if taking(_shapes(each), profiles)]
    if not fitting:
        told = ", ".join(f"{name} {times(values.shape)}" for name, values in feed.items())
        raise InputRefused(
            f"no optimization profile of the plan takes {told}; allowed: {allowed(profiles)}."
        )
    return min(fitting, key=lambda each: sum(values.size for values in each.values()))


def chosen(feed: Feed, profiles: Sequence[Profile]) -> int:
    """The profile that takes a feed and is tuned nearest to it. Raises InputRefused."""
    index = nearest(_shapes(feed), profiles)
    if index is None:
        raise InputRefused(
            f"no optimization profile of the plan takes the feed; allowed: {allowed(profiles)}."
        )
    return index


def _shapes(feed: Feed) -> dict[str, tuple[int, ...]]:
    return {name: values.shape for name, values in feed.items()}


def _takes_rows(feed: Feed, profile: Profile) -> bool:
    """True when the rows fit, however many there are."""
    shapes = {name: _grown(values[:1], profile[name], feed).shape for name, values in feed.items()}
    return all(
        ranges.takes((ranges.smallest[0], *shapes[name][1:])) for name, ranges in profile.items()
    )


def _most_rows(profile: Profile) -> int:
    return min(ranges.largest[0] for ranges in profile.values())


def _grown(values: Array, ranges: Range, feed: Feed) -> Array:
    missing = [
        max(0, least - size) for least, size in zip(ranges.smallest, values.shape, strict=False)
    ]
    if values.ndim == 2 and missing[1] and ATTENTION_MASK in feed:
        values = np.pad(values, ((0, 0), (0, missing[1])))
    if missing and missing[0] and len(values):
        values = np.concatenate([values, np.repeat(values[-1:], missing[0], axis=0)])
    return values
