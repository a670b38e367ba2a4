"""A proposal for people, and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from engine_build.lengths.padding import Way
from engine_build.lengths.proposal import Proposal, percentiles
from engine_build.lengths.speed import row_seconds, useful_at_shapes
from engine_build.runtimes.latency_table import plain_table
from onboarding.manifest import BenchmarkRecord
from onboarding.model_spec import OptimizationProfileSpec


def as_data(proposal: Proposal, records: Sequence[BenchmarkRecord]) -> dict[str, Any]:
    """Everything, as JSON; tokens per second are null where nothing was measured."""
    return {
        "texts": len(proposal.lengths),
        "cut": proposal.cut,
        "tokens": percentiles(proposal.lengths),
        "ways": [_way(each, proposal, records) for each in proposal.ways],
        "measured_shapes": [asdict(each) for each in useful_at_shapes(records, proposal.lengths)],
        "buckets": list(proposal.edges),
        "optimization_profiles": [each.model_dump(mode="json") for each in proposal.profiles],
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
    profiles = "\n".join(f"    - {_profile(each)}" for each in proposal.profiles)
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
        told = "" if rate is None else f"{rate:.0f}"
        rows.append((way["name"], f"{way['tokens_of_a_text']:.1f}", f"{way['wasted']:.1%}", told))
    return plain_table(rows, words=1)


def _shapes(shapes: Sequence[dict[str, Any]]) -> str:
    rows: list[tuple[str, ...]] = [
        ("measured shape", "texts that fit", "padding", "tokens/s", "useful tokens/s")
    ]
    for each in shapes:
        shape, rates = (
            f"{each['batch']} x {each['sequence']}",
            (each["tokens_per_second"], each["useful_tokens_per_second"]),
        )
        rows.append(
            (
                shape,
                f"{each['share_that_fits']:.0%}",
                f"{each['wasted']:.1%}",
                *(f"{rate:.0f}" for rate in rates),
            )
        )
    return plain_table(rows, words=1)


def _profile(profile: OptimizationProfileSpec) -> str:
    return f"{{batch: {list(profile.batch)}, sequence: {list(profile.sequence or ())}}}"
