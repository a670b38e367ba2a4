"""The sizes that a GPU engine runs at.

Batches are filled up to one of them, so that each can be a recorded CUDA graph. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from container.server.engines.engine import BucketCosts
from onboarding.manifest import ProfileRecord

MOST = 64
"""Sizes at most, but for a model that declares more itself.

Each takes a graph's memory and a moment of warm-up.
"""
Range = tuple[int, int, int]


@dataclass(frozen=True, kw_only=True)
class Bucket:
    """One size; `tokens` is `None` where rows have no sequence."""

    rows: int
    tokens: int | None = None

    @property
    def cells(self) -> int:
        """Rows times tokens, padding included."""
        return self.rows * (1 if self.tokens is None else self.tokens)

    def takes(self, rows: int, tokens: int | None) -> bool:
        """True when a batch of these rows, the longest of `tokens`, can be padded to it."""
        return self.rows >= rows and (
            self.tokens is None or tokens is None or self.tokens >= tokens
        )


class Buckets:
    """Sizes that some optimization profile takes."""

    def __init__(self, sizes: Iterable[Bucket], profiles: Sequence[ProfileRecord]) -> None:
        """Raises ValueError when there is none."""
        self.sizes = tuple(
            sorted(
                set(sizes),
                key=lambda bucket: (bucket.rows, -1 if bucket.tokens is None else bucket.tokens),
            )
        )
        if not self.sizes:
            raise ValueError("the engine has no size at which a batch could run")
        self._profiles = tuple(profiles)
        self._found: dict[tuple[int, int | None], tuple[tuple[int, Bucket], ...]] = {}
        self._exact: dict[int, Buckets] = {}

    @property
    def max_rows(self) -> int:
        """Rows of the largest batch."""
        return max(bucket.rows for bucket in self.sizes)

    @property
    def sequences(self) -> tuple[int, ...] | None:
        """Lengths, ascending; `None` where rows have none."""
        return (
            tuple(sorted({bucket.tokens for bucket in self.sizes if bucket.tokens is not None}))
            or None
        )

    def only(self, runs: Callable[[Bucket], bool]) -> Buckets:
        """Return the buckets for which `runs` is True. Raises ValueError when there is none."""
        return Buckets(filter(runs, self.sizes), self._profiles)

    def parts(self, rows: int, tokens: int | None) -> tuple[tuple[int, Bucket], ...]:
        """Return the runs of a batch as (rows, bucket).

        One, unless no profile takes so many rows. Raises ValueError when no bucket takes a row so
        long.
        """
        found = self._found.get((rows, tokens))
        if found is None:
            found = self._found[rows, tokens] = self._parts(rows, tokens)
        return found

    def exact_parts(self, rows: int, tokens: int) -> tuple[tuple[int, Bucket], ...]:
        """The same for rows whose length must stay as it is.

        Raises ValueError when no profile takes it.
        """
        exact = self._exact.get(tokens)
        if exact is None:
            batches = {bucket.rows for bucket in self.sizes}
            sizes = [
                Bucket(rows=batch, tokens=tokens)
                for batch in batches
                if _is_taken(self._profiles, batch, tokens)
            ]
            if not sizes:
                raise ValueError(
                    f"no optimization profile takes a length of {tokens}; allowed: "
                    f"{_lengths(self._profiles)}"
                )
            exact = self._exact[tokens] = Buckets(sizes, self._profiles)
        return exact.parts(rows, tokens)

    def _parts(self, rows: int, tokens: int | None) -> tuple[tuple[int, Bucket], ...]:
        long_enough = [bucket for bucket in self.sizes if bucket.takes(1, tokens)]
        if not long_enough:
            raise ValueError(
                f"no optimization profile takes {tokens} tokens; allowed: "
                f"{_lengths(self._profiles)}"
            )
        most = max(bucket.rows for bucket in long_enough)
        counts = [min(most, rows - begin) for begin in range(0, rows, most)]
        return tuple((count, _smallest(long_enough, count, tokens)) for count in counts)


def ladder(profiles: Sequence[ProfileRecord], *, max_rows: int) -> Buckets:
    """Every profile's own sizes and rungs between them, as fine as MOST allows.

    Raises ValueError.
    """
    finest: list[set[Bucket]] = [_sizes(profiles, max_rows, *rungs) for rungs in RUNGS]
    fitting = next((sizes for sizes in finest if len(sizes) <= MOST), finest[-1])
    return Buckets(fitting, profiles)


def bucket_costs(buckets: Buckets, seconds: Mapping[Bucket, float]) -> BucketCosts:
    """Return the cost of any batch from each bucket's seconds; several runs cost their sum."""
    rows = tuple(sorted({bucket.rows for bucket in buckets.sizes}))
    lengths = buckets.sequences
    measured = {
        (count, 1 if length is None else length): sum(
            seconds[bucket] for _, bucket in buckets.parts(count, length)
        )
        for count in rows
        for length in ((None,) if lengths is None else lengths)
    }
    return BucketCosts(rows=rows, lengths=(1,) if lengths is None else lengths, measured=measured)


def _powers(base: int, limit: int = 1 << 20) -> tuple[int, ...]:
    return tuple(base**power for power in range(1, 21) if base**power <= limit)


FINE_BATCHES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, *_powers(2)[6:])
FINE_SEQUENCES = (16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, *_powers(2)[9:])
RUNGS: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    (FINE_BATCHES, FINE_SEQUENCES),
    ((1, *_powers(2)), FINE_SEQUENCES),
    ((1, *_powers(2)), _powers(2)[3:]),
    ((1, *_powers(4)), _powers(2)[3:]),
    ((), _powers(2)[3:]),
    ((), ()),
)
"""Batches and sequences between a profile's own, from fine to none."""


def _sizes(
    profiles: Sequence[ProfileRecord],
    max_rows: int,
    batches: tuple[int, ...],
    sequences: tuple[int, ...],
) -> set[Bucket]:
    found: set[Bucket] = set()
    for profile in profiles:
        low, opt, high = profile.batch
        rows = [
            count
            for count in _within((low, opt, min(high, max_rows)), batches)
            if count <= max_rows
        ]
        lengths = (
            [None] if profile.sequence is None else sorted(_within(profile.sequence, sequences))
        )
        found |= {Bucket(rows=count, tokens=length) for count in rows for length in lengths}
    return found


def _within(sizes: Range, rungs: tuple[int, ...]) -> set[int]:
    return {*sizes, *(rung for rung in rungs if sizes[0] <= rung <= sizes[2])}


def _smallest(sizes: Sequence[Bucket], rows: int, tokens: int | None) -> Bucket:
    return min(
        (bucket for bucket in sizes if bucket.takes(rows, tokens)),
        key=lambda bucket: (bucket.cells, bucket.rows),
    )


def _is_taken(profiles: Sequence[ProfileRecord], rows: int, tokens: int) -> bool:
    return any(
        profile.batch[0] <= rows <= profile.batch[2]
        and (profile.sequence is None or profile.sequence[0] <= tokens <= profile.sequence[2])
        for profile in profiles
    )


def _lengths(profiles: Sequence[ProfileRecord]) -> str:
    return ", ".join(
        f"{profile.sequence[0]} to {profile.sequence[2]}"
        for profile in profiles
        if profile.sequence is not None
    )
