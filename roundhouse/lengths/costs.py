"""The cost of padding: tokens, milliseconds and USD of each bucket. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from onboarding.manifest import BenchmarkRecord, ProfileRecord
from roundhouse.lengths.padding import Padding, Size

MILLISECONDS_AN_HOUR = 3_600_000


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Requests, or parts of one, that the engine runs at once, of the same size."""

    rows: int
    longest: int
    """Tokens of the longest text."""
    count: int
    useful: int
    """Tokens of all texts, without padding."""

    @property
    def mean(self) -> float:
        """Tokens of a text."""
        return self.useful / (self.count * self.rows)


@dataclass(frozen=True)
class Table:
    """Milliseconds of the engine by size; between sizes a straight line."""

    measured: Mapping[Size, float]

    def ms(self, rows: int, tokens: float) -> float:
        """Return the milliseconds of a batch; outside of what was measured as near as known.

        Smaller sizes take what the smallest does, larger ones in proportion.
        """
        counts = sorted(self._lines)
        place = bisect_left(counts, rows)
        if place == 0:
            return self._at(counts[0], tokens)
        if place == len(counts):
            return self._at(counts[-1], tokens) * rows / counts[-1]
        low, high = counts[place - 1], counts[place]
        share = (rows - low) / (high - low)
        return (1 - share) * self._at(low, tokens) + share * self._at(high, tokens)

    def _at(self, rows: int, tokens: float) -> float:
        lengths, times = self._lines[rows]
        beyond = max(tokens / lengths[-1], 1.0)
        return float(np.interp(tokens, lengths, times)) * beyond

    @cached_property
    def _lines(self) -> dict[int, tuple[list[int], list[float]]]:
        lines: dict[int, tuple[list[int], list[float]]] = {}
        for (rows, tokens), ms in sorted(self.measured.items()):
            lengths, times = lines.setdefault(rows, ([], []))
            lengths.append(tokens)
            times.append(ms)
        return lines


def lock_table(records: Iterable[BenchmarkRecord], engine: tuple[str, str]) -> Table | None:
    """Return what a build measured of its own engine; None where it measured no sequence."""
    found = {
        (record.batch, record.sequence): record.p50_ms
        for record in records
        if (record.runtime, record.precision) == engine and record.sequence is not None
    }
    return Table(found) if found else None


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Texts of up to `tokens` tokens; milliseconds are the engine's, all requests together."""

    tokens: int
    profile: int | None = None
    """Index of the optimization profile that takes them; None: several, or of all texts."""
    runs: int
    texts: int
    useful: int
    padded: int
    """Tokens with padding, and with rows that fill batches up."""
    ms: float
    needed_ms: float
    """If nothing were padded."""

    @property
    def padding(self) -> float:
        """Share of the tokens that are padding."""
        return 1 - self.useful / self.padded

    @property
    def padding_ms(self) -> float:
        """Of the engine, spent on padding."""
        return self.ms - self.needed_ms


def bucket_costs(
    parts: Iterable[Parts], padding: Padding, table: Table, profiles: Sequence[ProfileRecord]
) -> tuple[Cost, ...]:
    """Return the cost of each length that texts are padded to, the shortest first."""
    costs: dict[int, Cost] = {}
    for part in parts:
        sizes = padding.sizes(part.rows, part.longest)
        tokens = max(size[1] for size in sizes)
        step = padding.steps[bisect_left(padding.steps, tokens)]
        ms = sum(table.ms(rows, length) for rows, length in sizes)
        cost = Cost(
            tokens=step,
            profile=profile_of(profiles, sizes[0]),
            runs=part.count * len(sizes),
            texts=part.count * part.rows,
            useful=part.useful,
            padded=part.count * sum(rows * length for rows, length in sizes),
            ms=part.count * ms,
            needed_ms=part.count * min(ms, table.ms(part.rows, part.mean)),
        )
        known = costs.get(step)
        costs[step] = cost if known is None else _sum(known, cost)
    return tuple(costs[step] for step in sorted(costs))


def total(costs: Sequence[Cost]) -> Cost:
    """Return the cost of all texts."""
    result = costs[0]
    for cost in costs[1:]:
        result = _sum(result, cost)
    return result


def _sum(first: Cost, second: Cost) -> Cost:
    return Cost(
        tokens=max(first.tokens, second.tokens),
        profile=first.profile if first.profile == second.profile else None,
        runs=first.runs + second.runs,
        texts=first.texts + second.texts,
        useful=first.useful + second.useful,
        padded=first.padded + second.padded,
        ms=first.ms + second.ms,
        needed_ms=first.needed_ms + second.needed_ms,
    )


def profile_of(profiles: Sequence[ProfileRecord], size: Size) -> int | None:
    """Return the profile of the shortest sequence that takes a size; None where there is none."""
    rows, tokens = size
    taking = [
        (profile.sequence[2], index)
        for index, profile in enumerate(profiles)
        if profile.sequence is not None
        and profile.sequence[2] >= tokens
        and profile.batch[2] >= rows
    ]
    return min(taking)[1] if taking else None


def usd(ms: float, usd_an_hour: float | None) -> float | None:
    """Return what an instance costs in that time; None where its price is not known."""
    return None if usd_an_hour is None else ms * usd_an_hour / MILLISECONDS_AN_HOUR
