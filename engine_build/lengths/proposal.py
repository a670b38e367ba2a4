"""Profiles and buckets for a model's real texts, beside what its present profiles cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine_build.datasets.dataset import Array
from engine_build.errors import InputRefused
from engine_build.evaluation.latency import format_table
from engine_build.lengths.padding import (
    Way,
    best_edges,
    bucketed,
    equal_edges,
    mixed,
    row_seconds,
    useful_at_shapes,
)
from onboarding.manifest import BenchmarkRecord
from onboarding.model_spec import OptimizationProfileSpec

PERCENTILES = (1, 5, 25, 50, 75, 90, 95, 99)
MULTIPLE = 8
"""Of edges: what tensor cores and vector units work in."""


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """The lengths of real texts, ways of batching them, and the proposed profiles."""

    lengths: Array
    """Tokens of every text, as the engine sees it: cut at the longest sequence."""
    cut: int
    """Texts that are longer than the longest sequence."""
    ways: tuple[Way, ...]
    edges: tuple[int, ...]
    profiles: tuple[OptimizationProfileSpec, ...]


def percentiles(lengths: Array) -> dict[str, float]:
    """The histogram in a few numbers."""
    values = {
        f"p{percent}": round(float(np.percentile(lengths, percent)), 1) for percent in PERCENTILES
    }
    return {
        "min": int(lengths.min()),
        **values,
        "max": int(lengths.max()),
        "mean": round(float(lengths.mean()), 1),
    }


def proposal(
    texts: Sequence[int], profiles: Sequence[OptimizationProfileSpec], count: int
) -> Proposal:
    """What to serve texts of such lengths with, at most `count` buckets.

    Raises InputRefused for a model without a sequence.
    """
    sequences = [profile.sequence for profile in profiles if profile.sequence is not None]
    if not sequences:
        raise InputRefused(
            "the model's profiles have no sequence axis, so there is nothing to pad; choose a "
            "text model."
        )
    present = tuple(sorted({sequence[2] for sequence in sequences}))
    longest, batch = present[-1], profiles[0].batch[1]
    tokens = np.asarray(texts, dtype=np.int64)
    lengths = np.minimum(tokens, longest)
    best = best_edges(lengths, count, multiple=MULTIPLE)
    equal = equal_edges(int(lengths.max()), count, multiple=MULTIPLE)
    best, equal = (tuple(min(edge, longest) for edge in edges) for edges in (best, equal))
    ways = (
        bucketed("padded to the present profiles' longest", lengths, present),
        mixed(f"batches of {batch} as they come", lengths, batch),
        bucketed(f"{len(equal)} equal buckets", lengths, equal),
        bucketed(f"{len(best)} proposed buckets", lengths, best),
        mixed(f"{len(best)} proposed buckets, batches of {batch}", lengths, batch, best),
    )
    return Proposal(
        lengths=lengths,
        cut=int((tokens > longest).sum()),
        ways=ways,
        edges=best,
        profiles=_profiles(best, profiles, sequences),
    )


def _profiles(
    edges: tuple[int, ...],
    present: Sequence[OptimizationProfileSpec],
    sequences: Sequence[tuple[int, int, int]],
) -> tuple[OptimizationProfileSpec, ...]:
    """Return one profile per bucket, tuned for its edge.

    Each opt batch has about the tokens of the present one. The last profile goes up to today's
    longest sequence, so that nothing that is served now is refused.
    """
    least = min(profile.batch[0] for profile in present)
    most = max(profile.batch[2] for profile in present)
    tokens = present[0].batch[1] * sequences[0][1]
    shortest = min(edges[0], *(sequence[0] for sequence in sequences))
    lows = [shortest, *(edge + 1 for edge in edges[:-1])]
    highs = [*edges[:-1], max(sequence[2] for sequence in sequences)]
    return tuple(
        OptimizationProfileSpec(
            batch=(least, min(max(tokens // edge, least), most), most), sequence=(low, edge, high)
        )
        for low, edge, high in zip(lows, edges, highs, strict=True)
    )


def as_data(proposal: Proposal, records: Sequence[BenchmarkRecord]) -> dict[str, Any]:
    """Everything, as JSON; tokens per second are null where nothing was measured."""
    lengths, seconds = proposal.lengths, row_seconds(records)
    ways = []
    for way in proposal.ways:
        rate = None if seconds is None else way.useful_tokens_per_second(lengths, seconds)
        ways.append(
            {
                "name": way.name,
                "edges": list(way.edges),
                "tokens_of_a_text": round(way.mean, 2),
                "wasted": round(way.wasted(lengths), 4),
                "estimated_useful_tokens_per_second": None if rate is None else round(rate, 1),
            }
        )
    return {
        "texts": len(lengths),
        "cut": proposal.cut,
        "tokens": percentiles(lengths),
        "ways": ways,
        "measured_shapes": useful_at_shapes(records, lengths),
        "buckets": list(proposal.edges),
        "optimization_profiles": [profile.model_dump(mode="json") for profile in proposal.profiles],
    }


def as_text(proposal: Proposal, records: Sequence[BenchmarkRecord]) -> str:
    """Tables, and lines for the model file."""
    data = as_data(proposal, records)
    tokens = ", ".join(f"{name} {value:g}" for name, value in data["tokens"].items())
    texts = f"{data['texts']} texts, {data['cut']} cut at the longest sequence; tokens: {tokens}"
    ways = [("way of batching", "tokens a text", "padding", "useful tokens/s (estimated)")]
    for way in data["ways"]:
        rate = way["estimated_useful_tokens_per_second"]
        cell = "" if rate is None else f"{rate:.0f}"
        ways.append((way["name"], f"{way['tokens_of_a_text']:.1f}", f"{way['wasted']:.1%}", cell))
    parts = [texts, format_table(ways, text_columns=1)]
    shapes = [("measured shape", "texts that fit", "padding", "tokens/s", "useful tokens/s")]
    for shape in data["measured_shapes"]:
        fits, padding = f"{shape['share_that_fits']:.0%}", f"{shape['wasted']:.1%}"
        rates = f"{shape['tokens_per_second']:.0f}", f"{shape['useful_tokens_per_second']:.0f}"
        shapes.append((f"{shape['batch']} x {shape['sequence']}", fits, padding, *rates))
    if len(shapes) > 1:
        parts.append(format_table(shapes, text_columns=1))
    profiles = "".join(
        f"\n    - {{batch: {list(profile.batch)}, sequence: {list(profile.sequence or ())}}}"
        for profile in proposal.profiles
    )
    parts.append(f"batcher buckets: {', '.join(map(str, proposal.edges))}")
    parts.append(f"proposed for the model file:\n  optimization_profiles:{profiles}")
    return "\n\n".join(parts)
