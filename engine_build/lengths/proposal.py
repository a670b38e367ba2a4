"""Profiles and buckets for a model's real texts, beside what its present profiles cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine_build.errors import InputRefused
from engine_build.lengths.buckets import best_edges, equal_edges
from engine_build.lengths.padding import Way, bucketed, mixed
from engine_build.samples.feed import Array
from onboarding.model_spec import OptimizationProfileSpec

PERCENTILES = (1, 5, 25, 50, 75, 90, 95, 99)
MULTIPLE = 8
"""Of edges: what tensor cores and vector units work in."""


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """What was found, and what is proposed."""

    lengths: Array
    """Tokens of every text, as the engine sees it: cut at the longest sequence."""
    cut: int
    """Texts that are longer than the longest sequence."""
    ways: tuple[Way, ...]
    edges: tuple[int, ...]
    profiles: tuple[OptimizationProfileSpec, ...]


def percentiles(lengths: Array) -> dict[str, float]:
    """The histogram in a few numbers."""
    found = {
        f"p{percent}": round(float(np.percentile(lengths, percent)), 1) for percent in PERCENTILES
    }
    return {
        "min": int(lengths.min()),
        **found,
        "max": int(lengths.max()),
        "mean": round(float(lengths.mean()), 1),
    }


def proposal(
    found: Sequence[int], profiles: Sequence[OptimizationProfileSpec], count: int
) -> Proposal:
    """What to serve texts of such lengths with, at most `count` buckets.

    Raises InputRefused for a model without a sequence.
    """
    sequences = [profile.sequence for profile in profiles if profile.sequence is not None]
    if not sequences:
        raise InputRefused(
            "the model's profiles have no sequence axis, so there is nothing to pad; choose a text model."
        )
    longest = max(sequence[2] for sequence in sequences)
    lengths = np.minimum(np.asarray(found, dtype=np.int64), longest)
    present = tuple(sorted({sequence[2] for sequence in sequences}))
    batch = profiles[0].batch[1]
    edges = tuple(min(edge, longest) for edge in best_edges(lengths, count, multiple=MULTIPLE))
    equal = tuple(
        min(edge, longest) for edge in equal_edges(int(lengths.max()), count, multiple=MULTIPLE)
    )
    ways = (
        bucketed("padded to the present profiles' longest", lengths, present),
        mixed(f"batches of {batch} as they come", lengths, batch),
        bucketed(f"{len(equal)} equal buckets", lengths, equal),
        bucketed(f"{len(edges)} proposed buckets", lengths, edges),
        mixed(f"{len(edges)} proposed buckets, batches of {batch}", lengths, batch, edges),
    )
    cut = int((np.asarray(found) > longest).sum())
    return Proposal(
        lengths=lengths,
        cut=cut,
        ways=ways,
        edges=edges,
        profiles=proposed_profiles(edges, profiles),
    )


def proposed_profiles(
    edges: tuple[int, ...], present: Sequence[OptimizationProfileSpec]
) -> tuple[OptimizationProfileSpec, ...]:
    """One profile per bucket, tuned for its edge; each opt batch has about the tokens that the
    present one has.

    The last goes up to the longest sequence of today, so that nothing that is served now is
    refused.
    """
    sequences = [profile.sequence for profile in present if profile.sequence is not None]
    shortest, longest = (
        min(edges[0], *(each[0] for each in sequences)),
        max(each[2] for each in sequences),
    )
    least, most = min(each.batch[0] for each in present), max(each.batch[2] for each in present)
    tokens = present[0].batch[1] * sequences[0][1]
    lows = [shortest, *(edge + 1 for edge in edges[:-1])]
    highs = [*edges[:-1], longest]
    return tuple(
        OptimizationProfileSpec(
            batch=(least, min(max(tokens // edge, least), most), most), sequence=(low, edge, high)
        )
        for low, edge, high in zip(lows, edges, highs, strict=True)
    )
