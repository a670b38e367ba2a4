"""The optimization profiles that real lengths are cheapest with. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from onboarding.manifest import ProfileRecord
from roundhouse.lengths.costs import Cost, Parts, Table, bucket_costs, total
from roundhouse.lengths.options import PadAs
from roundhouse.lengths.padding import Padding, padding

MULTIPLE = 8
"""Of edges: what tensor cores and vector units work in."""
WORTHWHILE = 0.01
"""Share of the engine's time; less is no reason for another profile, or another engine."""


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """Profiles, how a server pads with them, and what that costs."""

    profiles: tuple[ProfileRecord, ...]
    padding: Padding
    costs: tuple[Cost, ...]


def propose(
    parts: Sequence[Parts], present: Sequence[ProfileRecord], pad_as: PadAs, table: Table,
    *, most_profiles: int, most_rows: int,
) -> Proposal | None:  # fmt: skip
    """Return the fewest profiles within a hundredth of the best.

    None where the present ones are, and where padding does not depend on profiles.
    """
    if pad_as is PadAs.longest:
        return None
    before = _evaluate(parts, present, pad_as, table, most_rows)
    options = [
        _evaluate(parts, profiles_for(edges, present), pad_as, table, most_rows)
        for edges in {
            best_edges(parts, free_steps(present, pad_as, most_rows), present, table, count)
            for count in range(1, most_profiles + 1)
        }
    ]
    least = min(total(option.costs).ms for option in options)
    if least > total(before.costs).ms * (1 - WORTHWHILE):
        return None
    good = (item for item in options if total(item.costs).ms <= least * (1 + WORTHWHILE))
    return min(good, key=lambda item: (len(item.profiles), total(item.costs).ms))


def _evaluate(
    parts: Sequence[Parts],
    profiles: Sequence[ProfileRecord],
    pad_as: PadAs,
    table: Table,
    most: int,
) -> Proposal:
    how = padding(pad_as, profiles, most)
    costs = bucket_costs(parts, how, table, profiles)
    return Proposal(profiles=tuple(profiles), padding=how, costs=costs)


def free_steps(present: Sequence[ProfileRecord], pad_as: PadAs, most_rows: int) -> tuple[int, ...]:
    """Return the lengths that a server pads to whatever the edges between the extremes are."""
    shortest, longest = _extremes(present)
    only = present[0].model_copy(update={"sequence": (shortest, longest, longest)})
    return padding(pad_as, (only,), most_rows).steps


def best_edges(
    parts: Sequence[Parts],
    free: Sequence[int],
    present: Sequence[ProfileRecord],
    table: Table,
    count: int,
) -> tuple[int, ...]:
    """Return at most `count` longest sequences of profiles with the least time of the engine.

    Dynamic programming over the last edge: texts above one edge, and up to the next, are padded to
    that. Edges are multiples of 8; those of `free` cost no profile, and the last is today's
    longest sequence, so that nothing that is served is refused.
    """
    longest = _extremes(present)[1]
    rounded = {min(longest, -(-part.longest // MULTIPLE) * MULTIPLE) for part in parts}
    edges = sorted({*rounded, *(step for step in free if step <= longest), longest})
    is_free = [edge in free and edge != longest for edge in edges]
    below = _cumulative(parts, edges, table)
    # Milliseconds by profiles used (row) and last edge (column); the edges before it.
    cost = np.full((count + 1, len(edges)), np.inf)
    before = np.full((count + 1, len(edges)), -1)
    for last in range(len(edges)):
        used = 0 if is_free[last] else 1
        # A free edge is always there, so no bucket reaches over one.
        first = max((index for index in range(last) if is_free[index]), default=-1)
        for profiles in range(used, count + 1):
            for begin in range(first, last):
                base = cost[profiles - used, begin] if begin >= 0 else 0.0
                ms = base + below[last, last] - (below[begin, last] if begin >= 0 else 0.0)
                if ms < cost[profiles, last]:
                    cost[profiles, last], before[profiles, last] = ms, begin
    profiles = int(np.argmin(cost[:, -1]))
    found, place = [], len(edges) - 1
    while place >= 0:
        if not is_free[place]:
            found.append(edges[place])
        place, profiles = int(before[profiles, place]), profiles - (not is_free[place])
    return tuple(reversed(found))


def _cumulative(parts: Sequence[Parts], edges: Sequence[int], table: Table) -> np.ndarray:
    """Return the time of all texts up to one edge (row), padded to another (column)."""
    counts: dict[int, np.ndarray] = {}
    for part in parts:
        by_edge = counts.setdefault(part.rows, np.zeros(len(edges)))
        by_edge[bisect_left(edges, part.longest)] += part.count
    times = np.zeros((len(edges), len(edges)))
    for rows, by_edge in counts.items():
        times += np.outer(by_edge, [table.ms(rows, edge) for edge in edges])
    below: np.ndarray = np.cumsum(times, axis=0)
    return below


def profiles_for(
    edges: Sequence[int], present: Sequence[ProfileRecord]
) -> tuple[ProfileRecord, ...]:
    """Return one profile for each edge, tuned for it.

    Each opt batch has about the tokens of the present one.
    """
    least = min(profile.batch[0] for profile in present)
    most = max(profile.batch[2] for profile in present)
    opt = present[0].sequence
    tokens = present[0].batch[1] * (1 if opt is None else opt[1])
    shortest = min(edges[0], _extremes(present)[0])
    lows = [shortest, *(edge + 1 for edge in edges[:-1])]
    return tuple(
        ProfileRecord(
            batch=(least, min(max(tokens // edge, least), most), most), sequence=(low, edge, edge)
        )
        for low, edge in zip(lows, edges, strict=True)
    )


def _extremes(profiles: Sequence[ProfileRecord]) -> tuple[int, int]:
    """Return the shortest and the longest sequence."""
    ranges = [profile.sequence for profile in profiles if profile.sequence is not None]
    return min(item[0] for item in ranges), max(item[2] for item in ranges)
