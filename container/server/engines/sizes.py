"""The sizes that a manifest declares: the longest sequence, and what a server runs before it is
healthy.
"""

from __future__ import annotations

from collections.abc import Sequence

from onboarding.manifest import Manifest, ProfileRecord


def longest_sequence(profiles: Sequence[ProfileRecord]) -> int | None:
    """Most tokens that a row may have; `None` when no profile has a sequence axis."""
    return max(
        (profile.sequence[2] for profile in profiles if profile.sequence is not None), default=None
    )


def warm_up_sizes(manifest: Manifest) -> tuple[tuple[int, int | None], ...]:
    """(batch, sequence) of every profile's smallest, likeliest and largest sizes, each once; none
    when the spec wants none.
    """
    if not manifest.warm_up:
        return ()
    sizes: dict[tuple[int, int | None], None] = {}
    for profile in manifest.optimization_profiles:
        for place in range(3):
            batch = min(profile.batch[place], manifest.max_batch_size)
            sizes[(batch, None if profile.sequence is None else profile.sequence[place])] = None
    return tuple(sizes)
