"""Networks, plans and checkpoints side by side, with random inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from engine_build.datasets.dataset import ATTENTION_MASK, Array, Feed, Shape
from engine_build.errors import InputRefused, one_line
from engine_build.evaluation.footprint import Footprint, load_measured
from engine_build.evaluation.latency import (
    CONTROL,
    Engine,
    Latencies,
    Track,
    format_latencies,
    format_table,
    measure_latencies,
    summaries,
)
from engine_build.evaluation.runtimes import ON_CPU, Artifacts, Subject, import_runtime
from engine_build.evaluation.scores import median_interval
from engine_build.onnx_graph.onnx_file import tensor_records
from onboarding.manifest import TensorRecord

EVERY_ON_CPU = 8
"""Beside a GPU the CPU runs in every eighth round: its runs are long, and decide nothing."""
FIXED = {ATTENTION_MASK: 1, "token_type_ids": 0}
FEWEST_TOKENS = 100
"""Token numbers stay below this: every vocabulary has as many."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The measurements; the last engine is a second copy of the first."""

    engines: tuple[Engine, ...]
    footprints: tuple[tuple[Engine, Footprint], ...]
    """Of the engines that were not loaded before."""
    measured: tuple[Latencies, ...]


def compare(
    subjects: Sequence[Subject],
    inputs: Sequence[TensorRecord],
    shapes: Sequence[Shape],
    *,
    seconds: float,
) -> Comparison:
    """Load everything and measure it. Raises InputRefused when nothing can run."""
    if not subjects:
        raise InputRefused(
            "no runtime of this machine runs what was given; give --network with onnxruntime, or "
            "--checkpoint."
        )
    tracks = [Track(shape=shape, feed=random_feed(inputs, shape)) for shape in shapes]
    largest = max(tracks, key=lambda track: sum(values.size for values in track.feed.values()))
    for subject in subjects:
        import_runtime(subject.runtime)
    first = subjects[0]
    engines, footprints = [], []
    for subject in subjects:
        running, footprint = load_measured(subject.load, largest.feed)
        is_beside_gpu = subject.runtime in ON_CPU and first.runtime not in ON_CPU
        engine = Engine(
            runtime=subject.runtime,
            precision=subject.precision,
            run=running.rows,
            every=EVERY_ON_CPU if is_beside_gpu else 1,
        )
        engines.append(engine)
        if not subject.is_loaded:
            footprints.append((engine, footprint))
    control = first.precision + CONTROL
    engines.append(Engine(runtime=first.runtime, precision=control, run=first.load().rows))
    return Comparison(
        engines=tuple(engines),
        footprints=tuple(footprints),
        measured=measure_latencies(engines, tracks, seconds=seconds),
    )


def artifact_inputs(artifacts: Artifacts) -> tuple[TensorRecord, ...]:
    """Return what to feed. Raises InputRefused for nothing, or plans alone."""
    for path in artifacts.networks.values():
        return network_inputs(path)
    if artifacts.source is None:
        raise InputRefused(
            "nothing says what to feed; give --network (for a plan, the one that it was compiled "
            "from), or --checkpoint."
        )
    return text_inputs(artifacts.source.inputs)


def network_inputs(path: Path) -> tuple[TensorRecord, ...]:
    """Return the inputs of an ONNX file; its weights are not read."""
    import onnx

    try:
        graph = onnx.load(str(path), load_external_data=False).graph
    except Exception as error:
        reason = one_line(error, 200)
        raise InputRefused(f"{path} is no ONNX file that can be read ({reason}).") from error
    weights = {weight.name for weight in graph.initializer}
    return tensor_records(value for value in graph.input if value.name not in weights)


def text_inputs(names: Sequence[str]) -> tuple[TensorRecord, ...]:
    """Return the inputs of a text model: batch and sequence dynamic."""
    return tuple(TensorRecord(name=name, datatype="INT64", shape=(-1, -1)) for name in names)


def random_feed(inputs: Sequence[TensorRecord], shape: Shape) -> Feed:
    """Return seeded values of every input: normal floats, small token numbers, masks of ones."""
    random = np.random.default_rng(0)
    feed: Feed = {}
    for tensor in inputs:
        sizes, kind = _sizes(tensor, shape), tensor.datatype.lower().replace("fp", "float")
        values: Array
        if kind.startswith("float"):
            values = random.standard_normal(sizes)
        elif tensor.name in FIXED:
            values = np.full(sizes, FIXED[tensor.name])
        else:
            values = random.integers(0, 2 if kind == "bool" else FEWEST_TOKENS, size=sizes)
        feed[tensor.name] = values.astype(kind)
    return feed


def _sizes(tensor: TensorRecord, shape: Shape) -> tuple[int, ...]:
    if shape.sequence is None and -1 in tensor.shape[1:]:
        raise InputRefused(
            f"input {tensor.name} has a sequence axis; give shapes as BATCHxSEQUENCE, such as 8x64."
        )
    sequence = 0 if shape.sequence is None else shape.sequence
    return (shape.batch, *(sequence if size < 0 else size for size in tensor.shape[1:]))


def format_comparison(comparison: Comparison) -> str:
    """Return two tables: latencies, and footprints."""
    latencies = format_latencies(summaries(comparison.engines, comparison.measured))
    return f"{latencies}\n\n{format_footprints(comparison.footprints)}"


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
        "latencies": [
            record.model_dump(mode="json") for record in summaries(engines, comparison.measured)
        ],
        "held": [
            {"runtime": engine.runtime, "precision": engine.precision, **asdict(footprint)}
            for engine, footprint in comparison.footprints
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
