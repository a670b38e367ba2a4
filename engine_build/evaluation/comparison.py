"""Feeds for a network about which nothing is known but its inputs.

Networks, plans and checkpoints side by side, with random inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from engine_build.datasets.feed import ATTENTION_MASK, Array, Feed, Shape
from engine_build.errors import InputRefused
from engine_build.evaluation.footprint import Holding, held
from engine_build.evaluation.latency import (
    CONTROL,
    Latencies,
    Latency,
    Subject,
    Track,
    latencies,
    plain_table,
    summaries,
    table,
)
from engine_build.evaluation.runtimes import ON_CPU, Contender, Offer, import_runtime
from engine_build.evaluation.scores import median_interval

FIXED = {ATTENTION_MASK: 1, "token_type_ids": 0}
FEWEST_TOKENS = 100
"""Token numbers stay below this: every vocabulary has as many."""


@dataclass(frozen=True, kw_only=True)
class Input:
    """One input of a network; -1 is a dynamic axis: the first is the batch, any other the sequence."""

    name: str
    type: Any
    """numpy's."""
    shape: tuple[int, ...]


def network_inputs(path: Path) -> tuple[Input, ...]:
    """The inputs of an ONNX file; its weights are not read."""
    import onnx

    try:
        graph = onnx.load(str(path), load_external_data=False).graph
    except Exception as error:
        raise InputRefused(
            f"{path} is no ONNX file that can be read ({' '.join(str(error).split())[:200]})."
        ) from error
    weights = {weight.name for weight in graph.initializer}
    return tuple(_input(value) for value in graph.input if value.name not in weights)


def text_inputs(names: Sequence[str]) -> tuple[Input, ...]:
    """The inputs of a text model: int64, batch and sequence dynamic."""
    return tuple(Input(name=name, type=np.dtype(np.int64), shape=(-1, -1)) for name in names)


def random_feed(inputs: Sequence[Input], shape: Shape) -> Feed:
    """Seeded values of every input: normal floats, small token numbers, masks of ones."""
    random = np.random.default_rng(0)
    return {each.name: _values(each, _sizes(each, shape), random) for each in inputs}


def _sizes(each: Input, shape: Shape) -> tuple[int, ...]:
    rest = [shape.sequence if size < 0 else size for size in each.shape[1:]]
    if any(size is None for size in rest):
        raise InputRefused(
            f"input {each.name} has a sequence axis; give shapes as BATCHxSEQUENCE, such as 8x64."
        )
    return (shape.batch, *(size for size in rest if size is not None))


def _values(each: Input, sizes: tuple[int, ...], random: np.random.Generator) -> Array:
    values: Array
    if each.type.kind == "f":
        values = random.standard_normal(sizes)
    elif each.name in FIXED:
        values = np.full(sizes, FIXED[each.name])
    else:
        values = random.integers(0, 2 if each.type.kind == "b" else FEWEST_TOKENS, size=sizes)
    return values.astype(each.type)


def _input(value: Any) -> Input:
    import onnx

    tensor = value.type.tensor_type
    sizes = tuple(
        int(axis.dim_value) if axis.HasField("dim_value") else -1 for axis in tensor.shape.dim
    )
    return Input(
        name=value.name,
        type=np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)),
        shape=sizes,
    )


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
