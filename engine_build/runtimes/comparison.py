"""Networks, plans and checkpoints side by side, with random inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from engine_build.errors import InputRefused
from engine_build.judgement.bootstrap import median_interval
from engine_build.runtimes.contenders import ON_CPU, Contender, Offer, import_runtime
from engine_build.runtimes.holding import Holding, held
from engine_build.runtimes.latency_table import Latency, plain_table, summaries, table
from engine_build.runtimes.random_feed import Input, network_inputs, random_feed, text_inputs
from engine_build.runtimes.rounds import CONTROL, Latencies, Subject, Track, latencies
from engine_build.samples.feed import Feed, Shape

SELDOM = 8
"""Beside a GPU the CPU takes part in every eighth round: its runs are long, and decide nothing."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What was found; the last subject is a second copy of the first."""

    holdings: tuple[Holding | None, ...]
    """None for what was loaded before."""
    subjects: tuple[Subject, ...]
    measured: tuple[Latencies, ...]


def compared(
    found: Sequence[Contender], inputs: Sequence[Input], shapes: Sequence[Shape], *, seconds: float
) -> Comparison:
    """Loads everything and measures it. Raises InputRefused when nothing can run."""
    if not found:
        raise InputRefused(
            "no runtime of this machine runs what was given; give --network with onnxruntime, or --checkpoint."
        )
    feeds = [random_feed(inputs, shape) for shape in shapes]
    largest = max(feeds, key=_size)
    for each in found:
        import_runtime(each.runtime)
    loaded = [held(each.load, largest) for each in found]
    subjects = [
        Subject(
            runtime=each.runtime,
            precision=each.precision,
            run=running.rows,
            every=every(each, found),
        )
        for each, (running, _) in zip(found, loaded, strict=True)
    ]
    first = found[0]
    subjects.append(
        Subject(runtime=first.runtime, precision=first.precision + CONTROL, run=first.load().rows)
    )
    tracks = [Track(shape=shape, feed=feed) for shape, feed in zip(shapes, feeds, strict=True)]
    return Comparison(
        holdings=tuple(
            None if each.is_loaded else holding
            for each, (_, holding) in zip(found, loaded, strict=True)
        ),
        subjects=tuple(subjects),
        measured=latencies(subjects, tracks, seconds=seconds),
    )


def every(each: Contender, found: Sequence[Contender]) -> int:
    """How often it takes part."""
    return SELDOM if each.runtime in ON_CPU and found[0].runtime not in ON_CPU else 1


def inputs_of(offer: Offer) -> tuple[Input, ...]:
    """What to feed. Raises InputRefused for nothing, or plans alone."""
    for path in offer.networks.values():
        return network_inputs(path)
    if offer.source is None:
        raise InputRefused(
            "nothing says what to feed; give --network (for a plan, the one that it was compiled from), or --checkpoint."
        )
    return text_inputs(offer.source.inputs)


def as_text(comparison: Comparison) -> str:
    """Two tables: latencies, and what it takes to hold each."""
    return f"{table(_latencies(comparison))}\n\n{holding_table(_held(comparison))}"


def holding_table(found: Sequence[tuple[Subject, Holding]]) -> str:
    """What it takes to hold each subject."""
    rows = [("runtime", "precision", "load s", "host MiB", "device MiB")]
    for subject, holding in found:
        device = "" if holding.device_memory_mib is None else f"{holding.device_memory_mib:.0f}"
        memory = (f"{holding.host_memory_mib:.0f}", device)
        rows.append((subject.runtime, subject.precision, f"{holding.load_seconds:.2f}", *memory))
    return plain_table(rows, words=2)


def as_data(comparison: Comparison) -> dict[str, Any]:
    """The same as JSON, with the median of paired ratios of every subject against the first, and
    its interval.
    """
    subjects = comparison.subjects
    return {
        "latencies": [asdict(each) for each in _latencies(comparison)],
        "held": [
            {"runtime": each.runtime, "precision": each.precision, **asdict(holding)}
            for each, holding in _held(comparison)
        ],
        "times_as_fast_as_the_first": [
            _ratio(subjects[index], measured, index)
            for measured in comparison.measured
            for index in range(1, len(subjects))
        ],
    }


def _held(comparison: Comparison) -> list[tuple[Subject, Holding]]:
    pairs = zip(comparison.subjects, comparison.holdings, strict=False)
    return [(subject, holding) for subject, holding in pairs if holding is not None]


def _ratio(subject: Subject, measured: Latencies, index: int) -> dict[str, Any]:
    ratios = measured.ratios(0, index)
    low, high = median_interval(ratios)
    return {
        "runtime": subject.runtime,
        "precision": subject.precision,
        **asdict(measured.shape),
        "ratio": round(float(np.median(ratios)), 4),
        "low": round(low, 4),
        "high": round(high, 4),
        "rounds": len(ratios),
    }


def _latencies(comparison: Comparison) -> tuple[Latency, ...]:
    return summaries(comparison.subjects, comparison.measured)


def _size(feed: Feed) -> int:
    return sum(array.size for array in feed.values())
