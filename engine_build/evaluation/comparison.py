"""Networks, plans and checkpoints side by side, with random inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from engine_build.datasets.dataset import ATTENTION_MASK, Array, Feed, Shape
from engine_build.errors import InputRefused
from engine_build.evaluation.footprint import Footprint, load_measured
from engine_build.evaluation.latency import (
    CONTROL,
    Engine,
    Latencies,
    Latency,
    Track,
    format_latencies,
    format_table,
    measure_latencies,
    summaries,
)
from engine_build.evaluation.runtimes import ON_CPU, Artifacts, Subject, import_runtime
from engine_build.evaluation.scores import median_interval

EVERY_ON_CPU = 8
"""Beside a GPU the CPU runs in every eighth round: its runs are long, and decide nothing."""
FIXED = {ATTENTION_MASK: 1, "token_type_ids": 0}
FEWEST_TOKENS = 100
"""Token numbers stay below this: every vocabulary has as many."""


@dataclass(frozen=True, kw_only=True)
class Input:
    """One input of a network; -1 is a dynamic axis: the first the batch, any other the sequence."""

    name: str
    type: Any
    """numpy's."""
    shape: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The measurements; the last engine is a second copy of the first."""

    footprints: tuple[Footprint | None, ...]
    """None for what was loaded before."""
    engines: tuple[Engine, ...]
    measured: tuple[Latencies, ...]

    @property
    def latencies(self) -> tuple[Latency, ...]:
        """Every engine at every shape."""
        return summaries(self.engines, self.measured)

    @property
    def known_footprints(self) -> list[tuple[Engine, Footprint]]:
        """The engines whose footprint was measured."""
        pairs = zip(self.engines, self.footprints, strict=False)
        return [(engine, footprint) for engine, footprint in pairs if footprint is not None]


def compare(
    subjects: Sequence[Subject], inputs: Sequence[Input], shapes: Sequence[Shape], *, seconds: float
) -> Comparison:
    """Load everything and measure it. Raises InputRefused when nothing can run."""
    if not subjects:
        raise InputRefused(
            "no runtime of this machine runs what was given; give --network with onnxruntime, or "
            "--checkpoint."
        )
    feeds = [random_feed(inputs, shape) for shape in shapes]
    largest = max(feeds, key=lambda feed: sum(array.size for array in feed.values()))
    for subject in subjects:
        import_runtime(subject.runtime)
    loaded = [load_measured(subject.load, largest) for subject in subjects]
    first = subjects[0]
    engines = [
        Engine(
            runtime=subject.runtime,
            precision=subject.precision,
            run=running.rows,
            every=rounds_between(subject, first),
        )
        for subject, (running, _) in zip(subjects, loaded, strict=True)
    ]
    engines.append(
        Engine(runtime=first.runtime, precision=first.precision + CONTROL, run=first.load().rows)
    )
    tracks = [Track(shape=shape, feed=feed) for shape, feed in zip(shapes, feeds, strict=True)]
    return Comparison(
        footprints=tuple(
            None if subject.is_loaded else footprint
            for subject, (_, footprint) in zip(subjects, loaded, strict=True)
        ),
        engines=tuple(engines),
        measured=measure_latencies(engines, tracks, seconds=seconds),
    )


def rounds_between(subject: Subject, first: Subject) -> int:
    """Return in which rounds a subject runs: 1, all; 8, every eighth."""
    beside_gpu = subject.runtime in ON_CPU and first.runtime not in ON_CPU
    return EVERY_ON_CPU if beside_gpu else 1


def artifact_inputs(artifacts: Artifacts) -> tuple[Input, ...]:
    """Return what to feed. Raises InputRefused for nothing, or plans alone."""
    for path in artifacts.networks.values():
        return network_inputs(path)
    if artifacts.source is None:
        raise InputRefused(
            "nothing says what to feed; give --network (for a plan, the one that it was compiled "
            "from), or --checkpoint."
        )
    return text_inputs(artifacts.source.inputs)


def network_inputs(path: Path) -> tuple[Input, ...]:
    """Return the inputs of an ONNX file; its weights are not read."""
    import onnx

    try:
        graph = onnx.load(str(path), load_external_data=False).graph
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise InputRefused(f"{path} is no ONNX file that can be read ({reason}).") from error
    weights = {weight.name for weight in graph.initializer}
    return tuple(
        Input(
            name=value.name,
            type=np.dtype(onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)),
            shape=tuple(
                int(dim.dim_value) if dim.HasField("dim_value") else -1
                for dim in value.type.tensor_type.shape.dim
            ),
        )
        for value in graph.input
        if value.name not in weights
    )


def text_inputs(names: Sequence[str]) -> tuple[Input, ...]:
    """Return the inputs of a text model: int64, batch and sequence dynamic."""
    return tuple(Input(name=name, type=np.dtype(np.int64), shape=(-1, -1)) for name in names)


def random_feed(inputs: Sequence[Input], shape: Shape) -> Feed:
    """Return seeded values of every input: normal floats, small token numbers, masks of ones."""
    random = np.random.default_rng(0)
    return {item.name: _values(item, _sizes(item, shape), random) for item in inputs}


def format_comparison(comparison: Comparison) -> str:
    """Return two tables: latencies, and footprints."""
    footprints = format_footprints(comparison.known_footprints)
    return f"{format_latencies(comparison.latencies)}\n\n{footprints}"


def format_footprints(footprints: Sequence[tuple[Engine, Footprint]]) -> str:
    """Return the load time and memory of each engine, as plain text."""
    rows = [("runtime", "precision", "load s", "host MiB", "device MiB")]
    for engine, footprint in footprints:
        device = footprint.device_memory_mib
        memory = (f"{footprint.host_memory_mib:.0f}", "" if device is None else f"{device:.0f}")
        rows.append((engine.runtime, engine.precision, f"{footprint.load_seconds:.2f}", *memory))
    return format_table(rows, text_columns=2)


def comparison_data(comparison: Comparison) -> dict[str, Any]:
    """Return the same as JSON, with each engine's median paired ratio against the first."""
    engines = comparison.engines
    return {
        "latencies": [asdict(latency) for latency in comparison.latencies],
        "held": [
            {"runtime": engine.runtime, "precision": engine.precision, **asdict(footprint)}
            for engine, footprint in comparison.known_footprints
        ],
        "times_as_fast_as_the_first": [
            _ratio(engines[index], latencies, index)
            for latencies in comparison.measured
            for index in range(1, len(engines))
        ],
    }


def _ratio(engine: Engine, latencies: Latencies, index: int) -> dict[str, Any]:
    ratios = latencies.ratios(0, index)
    low, high = median_interval(ratios)
    return {
        "runtime": engine.runtime,
        "precision": engine.precision,
        **asdict(latencies.shape),
        "ratio": round(float(np.median(ratios)), 4),
        "low": round(low, 4),
        "high": round(high, 4),
        "rounds": len(ratios),
    }


def _sizes(item: Input, shape: Shape) -> tuple[int, ...]:
    rest = [shape.sequence if size < 0 else size for size in item.shape[1:]]
    if any(size is None for size in rest):
        raise InputRefused(
            f"input {item.name} has a sequence axis; give shapes as BATCHxSEQUENCE, such as 8x64."
        )
    return (shape.batch, *(size for size in rest if size is not None))


def _values(item: Input, sizes: tuple[int, ...], random: np.random.Generator) -> Array:
    values: Array
    if item.type.kind == "f":
        values = random.standard_normal(sizes)
    elif item.name in FIXED:
        values = np.full(sizes, FIXED[item.name])
    else:
        values = random.integers(0, 2 if item.type.kind == "b" else FEWEST_TOKENS, size=sizes)
    return values.astype(item.type)
