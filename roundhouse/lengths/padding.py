"""The sizes that servers pad batches to, by the servers' own code."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from onboarding.manifest import ProfileRecord
from roundhouse.lengths.options import PadAs

Size = tuple[int, int]
"""Rows and tokens of a batch, padding included."""


DESCRIPTIONS = {
    PadAs.longest: "engines on a CPU pad to the longest text of a request, whatever profiles say",
    PadAs.triton: "Triton pads to each profile's lengths, and to powers of two between them",
    PadAs.python: "the Python server fills batches up to the profiles' sizes, and steps between",
}


@dataclass(frozen=True, kw_only=True)
class Padding:
    """How a server pads."""

    pad_as: PadAs
    steps: tuple[int, ...]
    """Lengths that it pads to; of `longest` only those that reports group texts by."""
    sizes: Callable[[int, int], tuple[Size, ...]]
    """What runs for so many rows, the longest of so many tokens."""


def default_padding(server: str, *, is_gpu: bool) -> PadAs:
    """Return how an environment's server pads."""
    if not is_gpu:
        return PadAs.longest
    return PadAs.triton if server == "triton" else PadAs.python


def padding(pad_as: PadAs, profiles: Sequence[ProfileRecord], most_rows: int) -> Padding:
    """Return how a server pads with these optimization profiles, which have sequences."""
    if pad_as is PadAs.python:
        from container.server.engines.buckets import ladder

        buckets = ladder(profiles, max_rows=most_rows)

        def fill(rows: int, longest: int) -> tuple[Size, ...]:
            parts = buckets.parts(rows, longest)
            return tuple((bucket.rows, bucket.tokens or longest) for _, bucket in parts)

        return Padding(pad_as=pad_as, steps=buckets.sequences or (), sizes=fill)

    from container.triton.manifest_check import sequence_buckets

    steps = sequence_buckets(
        {"optimization_profiles": [profile.model_dump() for profile in profiles]}
    )

    def pad(rows: int, longest: int) -> tuple[Size, ...]:
        return ((rows, steps[bisect_left(steps, longest)]),)

    def keep(rows: int, longest: int) -> tuple[Size, ...]:
        return ((rows, longest),)

    return Padding(pad_as=pad_as, steps=steps, sizes=keep if pad_as is PadAs.longest else pad)
