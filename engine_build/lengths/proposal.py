"""Profiles and buckets for a model's real texts, beside what its present profiles cost.

A proposal for people, and for programs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
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
            "the model's profiles have no sequence axis, so there is nothing to pad; choose a "
            "text model."
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
    """Return one profile per bucket, tuned for its edge.

    Each opt batch has about the tokens of the present one. The last profile goes up to today's
    longest sequence, so that nothing that is served now is refused.
    """
    sequences = [profile.sequence for profile in present if profile.sequence is not None]
    shortest, longest = (
        min(edges[0], *(element[0] for element in sequences)),
        max(sequence[2] for sequence in sequences),
    )
    least, most = min(item.batch[0] for item in present), max(entry.batch[2] for entry in present)
    tokens = present[0].batch[1] * sequences[0][1]
    lows = [shortest, *(edge + 1 for edge in edges[:-1])]
    highs = [*edges[:-1], longest]
    return tuple(
        OptimizationProfileSpec(
            batch=(least, min(max(tokens // edge, least), most), most), sequence=(low, edge, high)
        )
        for low, edge, high in zip(lows, edges, highs, strict=True)
    )


def as_data(proposal: Proposal, records: Sequence[BenchmarkRecord]) -> dict[str, Any]:
    """Everything, as JSON; tokens per second are null where nothing was measured."""
    return {
        "texts": len(proposal.lengths),
        "cut": proposal.cut,
        "tokens": percentiles(proposal.lengths),
        "ways": [_way(way, proposal, records) for way in proposal.ways],
        "measured_shapes": [asdict(shape) for shape in useful_at_shapes(records, proposal.lengths)],
        "buckets": list(proposal.edges),
        "optimization_profiles": [profile.model_dump(mode="json") for profile in proposal.profiles],
    }


def as_text(proposal: Proposal, records: Sequence[BenchmarkRecord]) -> str:
    """Tables, and lines for the model file."""
    data = as_data(proposal, records)
    tokens = ", ".join(f"{name} {value:g}" for name, value in data["tokens"].items())
    parts = [
        f"{data['texts']} texts, {data['cut']} cut at the longest sequence; tokens: {tokens}",
        _ways(data["ways"]),
    ]
    if data["measured_shapes"]:
        parts.append(_shapes(data["measured_shapes"]))
    profiles = "\n".join(f"    - {_profile(profile)}" for profile in proposal.profiles)
    parts.append(f"batcher buckets: {', '.join(map(str, proposal.edges))}")
    parts.append(f"proposed for the model file:\n  optimization_profiles:\n{profiles}")
    return "\n\n".join(parts)


def _way(way: Way, proposal: Proposal, records: Sequence[BenchmarkRecord]) -> dict[str, Any]:
    seconds = row_seconds(records)
    rate = (
        None
        if seconds is None
        else round(way.useful_tokens_per_second(proposal.lengths, seconds), 1)
    )
    return {
        "name": way.name,
        "edges": list(way.edges),
        "tokens_of_a_text": round(way.mean, 2),
        "wasted": round(way.wasted(proposal.lengths), 4),
        "estimated_useful_tokens_per_second": rate,
    }


def _ways(ways: Sequence[dict[str, Any]]) -> str:
    rows = [("way of batching", "tokens a text", "padding", "useful tokens/s (estimated)")]
    for way in ways:
        rate = way["estimated_useful_tokens_per_second"]
        cell = "" if rate is None else f"{rate:.0f}"
        rows.append((way["name"], f"{way['tokens_of_a_text']:.1f}", f"{way['wasted']:.1%}", cell))
    return format_table(rows, text_columns=1)


def _shapes(shapes: Sequence[dict[str, Any]]) -> str:
    rows: list[tuple[str, ...]] = [
        ("measured shape", "texts that fit", "padding", "tokens/s", "useful tokens/s")
    ]
    for item in shapes:
        shape, rates = (
            f"{item['batch']} x {item['sequence']}",
            (item["tokens_per_second"], item["useful_tokens_per_second"]),
        )
        rows.append(
            (
                shape,
                f"{item['share_that_fits']:.0%}",
                f"{item['wasted']:.1%}",
                *(f"{rate:.0f}" for rate in rates),
            )
        )
    return format_table(rows, text_columns=1)


def _profile(profile: OptimizationProfileSpec) -> str:
    return f"{{batch: {list(profile.batch)}, sequence: {list(profile.sequence or ())}}}"
