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
        self.sizes = tuple(sorted(set(sizes), key=lambda bucket: (bucket.rows, bucket.tokens or 0)))
        if not self.sizes:
            raise ValueError("the engine has no size at which a batch could run")
        self.max_rows = max(bucket.rows for bucket in self.sizes)
        lengths = {bucket.tokens for bucket in self.sizes if bucket.tokens is not None}
        self.sequences = tuple(sorted(lengths)) or None
        """Lengths, ascending; `None` where rows have none."""
        self._profiles = tuple(profiles)
        self._parts_of: dict[tuple[int, int | None], tuple[tuple[int, Bucket], ...]] = {}
        self._exact: dict[int, Buckets] = {}

    def only(self, runs: Callable[[Bucket], bool]) -> Buckets:
        """Return the buckets for which `runs` is True. Raises ValueError when there is none."""
        return Buckets(filter(runs, self.sizes), self._profiles)

    def parts(self, rows: int, tokens: int | None) -> tuple[tuple[int, Bucket], ...]:
        """Return the runs of a batch as (rows, bucket): one, unless no profile takes so many rows.

        Raises ValueError when no bucket takes a row so long.
        """
        parts = self._parts_of.get((rows, tokens))
        if parts is None:
            parts = self._parts_of[rows, tokens] = self._parts(rows, tokens)
        return parts

    def exact_parts(self, rows: int, tokens: int) -> tuple[tuple[int, Bucket], ...]:
        """Return the runs of rows whose length must stay as it is.

        Raises ValueError when no profile takes it.
        """
        exact = self._exact.get(tokens)
        if exact is None:
            sizes = [
                Bucket(rows=batch, tokens=tokens)
                for batch in {bucket.rows for bucket in self.sizes}
                if any(_takes(profile, batch, tokens) for profile in self._profiles)
            ]
            if not sizes:
                raise self._refusal(f"a length of {tokens}")
            exact = self._exact[tokens] = Buckets(sizes, self._profiles)
        return exact.parts(rows, tokens)

    def _parts(self, rows: int, tokens: int | None) -> tuple[tuple[int, Bucket], ...]:
        long_enough = [bucket for bucket in self.sizes if bucket.takes(1, tokens)]
        if not long_enough:
            raise self._refusal(f"{tokens} tokens")
        most = max(bucket.rows for bucket in long_enough)

        def smallest(count: int) -> Bucket:
            sizes = (bucket for bucket in long_enough if bucket.takes(count, tokens))
            return min(sizes, key=lambda bucket: (bucket.cells, bucket.rows))

        counts = [min(most, rows - begin) for begin in range(0, rows, most)]
        return tuple((count, smallest(count)) for count in counts)

    def _refusal(self, size: str) -> ValueError:
        ranges = [profile.sequence for profile in self._profiles if profile.sequence is not None]
        allowed = ", ".join(f"{low} to {high}" for low, _, high in ranges)
        return ValueError(f"no optimization profile takes {size}; allowed: {allowed}")


def _takes(profile: ProfileRecord, rows: int, tokens: int) -> bool:
    low, _, high = (tokens,) * 3 if profile.sequence is None else profile.sequence
    return profile.batch[0] <= rows <= profile.batch[2] and low <= tokens <= high


def bucket_costs(buckets: Buckets, seconds: Mapping[Bucket, float]) -> BucketCosts:
    """Return the cost of any batch from each bucket's seconds; several runs cost their sum."""
    rows = tuple(sorted({bucket.rows for bucket in buckets.sizes}))
    measured = {
        (count, 1 if length is None else length): sum(
            seconds[bucket] for _, bucket in buckets.parts(count, length)
        )
        for count in rows
        for length in buckets.sequences or (None,)
    }
    return BucketCosts(rows=rows, lengths=buckets.sequences or (1,), measured=measured)


def _powers(base: int, least: int) -> tuple[int, ...]:
    return tuple(base**power for power in range(21) if least <= base**power <= 1 << 20)


FINE_BATCHES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, *_powers(2, 128))
FINE_SEQUENCES = (16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, *_powers(2, 1024))
RUNGS: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    (FINE_BATCHES, FINE_SEQUENCES),
    (_powers(2, 1), FINE_SEQUENCES),
    (_powers(2, 1), _powers(2, 16)),
    (_powers(4, 1), _powers(2, 16)),
    ((), _powers(2, 16)),
    ((), ()),
)
"""Batches and sequences between a profile's own, from fine to none."""


def ladder(profiles: Sequence[ProfileRecord], *, max_rows: int) -> Buckets:
    """Return every profile's own sizes and rungs between them, as fine as MOST allows.

    Raises ValueError.
    """
    for batches, sequences in RUNGS:
        sizes = {
            Bucket(rows=rows, tokens=tokens)
            for profile in profiles
            for rows in _within(profile.batch, batches, max_rows)
            for tokens in (
                (None,) if profile.sequence is None else _within(profile.sequence, sequences)
            )
        }
        if len(sizes) <= MOST:
            break
    return Buckets(sizes, profiles)


def _within(sizes: tuple[int, int, int], rungs: Sequence[int], most: int = 1 << 62) -> set[int]:
    """Return a range's own sizes and the rungs between them, none above `most`."""
    low, opt, high = sizes
    high = min(high, most)
    return {size for size in (low, opt, high, *rungs) if low <= size <= high}
