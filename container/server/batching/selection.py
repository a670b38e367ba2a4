"""Selects the rows of the next batch: those that, with the row whose turn it is, cost least."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from container.server.engines.engine import Costs

NEARLY, BATCHES_IN_WINDOW, SHARE_IN_WINDOW = 1.1, 4, 3
WEIGHED_APART = 8
"""Lengths that are weighed in every way; of more, neighbours that run sooner together count as one.
"""
TYPICAL_LENGTH = 16
"""Tokens of a short text."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchLimits:
    """Limits of one batch; tokens count padding."""

    max_rows: int
    max_tokens: int

    def rows(self, longest: int) -> int:
        """Rows that fit when padded to `longest` tokens; one row always does."""
        return max(1, min(self.max_rows, self.max_tokens // max(1, longest)))


class Pick(NamedTuple):
    """The oldest `rows` of the waiting rows of one length."""

    length: int
    rows: int


def select_rows(
    lengths: Sequence[int],
    head: int,
    count: Callable[[int], int],
    *,
    limits: BatchLimits,
    costs: Costs,
    edges: Sequence[int] = (),
) -> list[Pick]:
    """Return the next batch as rows per length, ascending.

    It holds the oldest row of `lengths[head]`. `lengths` ascend; `count` returns how many rows of a
    length wait within the window, at most a full batch; `edges` are the row counts after which the
    cost steps up. It examines about as many lengths as a batch has rows.
    """
    full = limits.rows(lengths[head])
    waiting = count(lengths[head])
    if waiting >= full:
        return [Pick(lengths[head], full)]
    picks, head_at = _window(lengths, head, waiting, count, limits)
    low, high = _cheapest_run(picks, head_at, costs)
    return _trim_to_bucket(picks[low:high], head_at - low, costs, edges)


def least_window(costs: Costs, *, max_rows: int, length: int) -> int:
    """Return the smallest window: four batches of the fewest rows that run nearly best.

    On a CPU five rows run as well as thirty-two.
    """
    least = NEARLY * costs.seconds(max_rows, length) / max_rows
    enough = next(
        rows
        for rows in range(1, max_rows + 1)
        if rows == max_rows or costs.seconds(rows, length) / rows <= least
    )
    return BATCHES_IN_WINDOW * enough


def window_rows(least: int, waiting: int) -> int:
    """Return how much later a row may have come that runs before another: a third of the queue.

    A larger window finds rows of more similar lengths, and makes some wait for all the others.
    MiniLM on two cores, 64 clients, simulated: a third of the queue 482 rows/s and p99 / p50 1.27,
    half of it 486 and 1.36, all of it 507 and 1.57, the oldest alone 460.
    """
    return max(least, waiting // SHARE_IN_WINDOW)


def total_rows(picks: Sequence[Pick]) -> int:
    """Return the rows of all picks."""
    return sum([pick.rows for pick in picks])


def row_edges(costs: Costs, *, max_rows: int, longest: int) -> tuple[int, ...]:
    """Return the row counts where one row more costs more, and one row fewer saves nothing."""
    seconds = [costs.seconds(rows, longest) for rows in range(1, max_rows + 1)]
    return tuple(
        rows
        for rows in range(1, max_rows)
        if seconds[rows - 1] < seconds[rows]
        and (rows == 1 or seconds[rows - 2] == seconds[rows - 1])
    )


def _window(
    lengths: Sequence[int],
    head: int,
    waiting: int,
    count: Callable[[int], int],
    limits: BatchLimits,
) -> tuple[list[Pick], int]:
    """Return the rows that fit, and how many lengths are below the head's.

    It grows from the head's length to the side that adds less padding.
    """
    below: list[Pick] = []
    above: list[Pick] = [Pick(lengths[head], waiting)]
    low, high, rows = head - 1, head + 1, waiting
    while True:
        longest = above[-1].length
        shorter = low >= 0 and rows < limits.rows(longest)
        longer = high < len(lengths) and rows < limits.rows(lengths[high])
        if shorter and (not longer or longest - lengths[low] <= (lengths[high] - longest) * rows):
            side, length, most = below, lengths[low], limits.rows(longest)
            low -= 1
        elif longer:
            side, length, most = above, lengths[high], limits.rows(lengths[high])
            high += 1
        else:
            return below[::-1] + above, len(below)
        added = min(count(length), most - rows)
        if added:
            side.append(Pick(length, added))
            rows += added


def _cheapest_run(picks: Sequence[Pick], head_at: int, costs: Costs) -> tuple[int, int]:
    """Return the picks that run with the head's when the whole window runs in the least time."""
    blocks = _blocks(picks, costs)
    if len(blocks) == 1:
        return 0, len(picks)
    high = len(blocks) - 1
    starts = _least_seconds(picks, blocks, costs)
    while blocks[starts[high]][0] > head_at:
        high = starts[high] - 1
    return blocks[starts[high]][0], blocks[high][1]


def _blocks(picks: Sequence[Pick], costs: Costs) -> list[tuple[int, int]]:
    """Return the neighbouring lengths that are weighed as one, as [first, end) indexes."""
    if len(picks) <= WEIGHED_APART:
        return [(index, index + 1) for index in range(len(picks))]
    blocks: list[tuple[int, int]] = []
    first, rows = 0, picks[0].rows
    for index, (before, pick) in enumerate(pairwise(picks), start=1):
        apart = costs.seconds(rows, before.length) + costs.seconds(pick.rows, pick.length)
        rows += pick.rows
        if apart < costs.seconds(rows, pick.length):
            blocks.append((first, index))
            first, rows = index, pick.rows
    return [*blocks, (first, len(picks))]


def _least_seconds(
    picks: Sequence[Pick], blocks: Sequence[tuple[int, int]], costs: Costs
) -> list[int]:
    """Return, by block, the first block of its batch when all blocks so far take the least time."""
    best, starts = [0.0], []
    rows_of = [total_rows(picks[first:end]) for first, end in blocks]
    for last, (_, end) in enumerate(blocks):
        rows, longest = 0, picks[end - 1].length
        least, least_start = float("inf"), last
        for start in range(last, -1, -1):
            rows += rows_of[start]
            seconds = best[start] + costs.seconds(rows, longest)
            if seconds <= least:
                least, least_start = seconds, start
        best.append(least)
        starts.append(least_start)
    return starts


def _trim_to_bucket(
    picks: list[Pick], head_at: int, costs: Costs, edges: Sequence[int]
) -> list[Pick]:
    """Return the picks without rows that push the batch into a larger bucket at a higher cost.

    The longest go first, then the shortest, then the newest.
    """
    rows, longest = total_rows(picks), picks[-1].length
    edge = max([edge for edge in edges if edge < rows], default=rows)
    excess = rows - edge
    if not excess:
        return picks
    apart = costs.seconds(edge, longest) + costs.seconds(excess, longest)
    if apart >= costs.seconds(rows, longest):
        return picks
    kept = list(picks)
    for index in [*range(len(picks) - 1, head_at, -1), *range(head_at), head_at]:
        cut = min(excess, kept[index].rows)
        kept[index] = Pick(kept[index].length, kept[index].rows - cut)
        excess -= cut
    return [pick for pick in kept if pick.rows]
