"""The benchmark step: every engine, and whatever else this machine can run of the model.

Another runtime's footprint is measured in this process, and its host memory is a lower bound where
something else had loaded its library.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass

from engine_build.context import BuildContext
from engine_build.datasets.dataset import Feed, Shape
from engine_build.errors import BuildError
from engine_build.evaluation.comparison import format_footprints
from engine_build.evaluation.decision import LEAST_ROUNDS, Candidate, speedup
from engine_build.evaluation.footprint import Footprint, load_measured, measure_in_child
from engine_build.evaluation.latency import (
    CONTROL,
    Engine,
    Latencies,
    Track,
    format_latencies,
    measure_latencies,
    summaries,
)
from engine_build.evaluation.runtimes import (
    Artifacts,
    Load,
    Subject,
    close,
    import_runtime,
    load_engine,
    machine_runtimes,
    missing_runtimes,
    runnable,
)
from engine_build.steps.prepare import Prepared
from engine_build.steps.verify import QDQ
from onboarding.manifest import BenchmarkRecord, RuntimeRecord, SpeedupRecord
from onboarding.model_spec import OptimizationProfileSpec

OPT_WEIGHT = 3.0
"""Opt shapes decide between candidates, so they have more of the benchmark's time."""
OTHERS_EVERY = 4
"""What cannot be chosen runs in every fourth round."""


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """The records of a benchmark."""

    benchmark: tuple[BenchmarkRecord, ...]
    speedups: tuple[SpeedupRecord, ...]
    runtimes: tuple[RuntimeRecord, ...]
    """The engines first, in the order of the candidates."""


Measured = tuple[Engine, Footprint | None]
"""None for the duplicate control, and for what was loaded before."""


def benchmark(
    context: BuildContext,
    prepared: Prepared,
    candidates: Sequence[Candidate],
    *,
    decides: bool,
    load: Load = load_engine,
) -> Measurement:
    """Measure candidates, the first being the baseline, and other runtimes of the model.

    `decides`: as many rounds as an interval needs are run at opt shapes, however long they take.
    """
    profiles = context.request.model.engine.optimization_profiles
    samples = context.request.validation.values
    feeds = {shape: prepared.encoder.shaped(samples, shape) for shape in profile_shapes(profiles)}
    opt = opt_shapes(profiles)
    here = machine_runtimes()
    others = runnable(_other_artifacts(context, prepared), here)
    intent = (
        f"{len(candidates)} engines, a duplicate control and {len(others)} other runtimes, "
        f"{len(feeds)} shapes, random order"
    )
    with context.log.step("benchmark", intent), ExitStack() as stack:
        if (missing := missing_runtimes(here)) is not None:
            context.log.line(f"  {missing}")
        feed = feeds[context.request.opt_shape]
        measured = [
            *_load_candidates(context, candidates, feed, load, stack),
            *_load_others(context, others, feed, stack),
        ]
        engines = [engine for engine, _ in measured]
        latencies = measure_latencies(
            engines, _tracks(feeds, opt, decides), seconds=context.settings.benchmark_seconds
        )
    footprints = [(engine, footprint) for engine, footprint in measured if footprint is not None]
    summary = summaries(engines, latencies)
    context.log.line(format_latencies(summary))
    context.log.line(format_footprints(footprints))
    return Measurement(
        benchmark=tuple(BenchmarkRecord(**asdict(latency)) for latency in summary),
        speedups=_speedups(candidates, latencies, opt),
        runtimes=tuple(
            RuntimeRecord(runtime=engine.runtime, precision=engine.precision, **asdict(footprint))
            for engine, footprint in footprints
        ),
    )


def profile_shapes(profiles: Sequence[OptimizationProfileSpec]) -> tuple[Shape, ...]:
    """Return min, opt and max of every profile, each once."""
    return tuple(
        dict.fromkeys(_shape(profile, place) for profile in profiles for place in range(3))
    )


def opt_shapes(profiles: Sequence[OptimizationProfileSpec]) -> tuple[Shape, ...]:
    """Return the opt shape of every profile, each once."""
    return tuple(dict.fromkeys(_shape(profile, 1) for profile in profiles))


def _shape(profile: OptimizationProfileSpec, place: int) -> Shape:
    sequence = None if profile.sequence is None else profile.sequence[place]
    return Shape(batch=profile.batch[place], sequence=sequence)


def _other_artifacts(context: BuildContext, prepared: Prepared) -> Artifacts:
    """Return what is no candidate: a CPU runs the Q/DQ network besides, a GPU the float one."""
    name, network = (QDQ, "int8") if context.request.is_cpu else ("fp32", "float")
    known = prepared.networks.get(network)
    return Artifacts(networks={} if known is None else {name: known.path}, source=prepared.source)


def _load_candidates(
    context: BuildContext, candidates: Sequence[Candidate], feed: Feed, load: Load, stack: ExitStack
) -> list[Measured]:
    """Load the candidates, and a second copy of the first: memory's layout differs by copy."""
    runtime, scratch = context.request.runtime.name, context.work.scratch("benchmark")
    # Each in a process of its own, before this one fills its memory and the GPU's.
    footprints: list[Footprint | None] = [
        measure_in_child(candidate.path, feed, scratch, context.runner) for candidate in candidates
    ]
    first = candidates[0]
    names = [candidate.precision for candidate in candidates]
    measured = []
    for name, path, footprint in zip(
        [*names, first.precision + CONTROL],
        [*(candidate.path for candidate in candidates), first.path],
        [*footprints, None],
        strict=True,
    ):
        running = load(runtime, path)
        stack.callback(close, running)
        measured.append((Engine(runtime=runtime, precision=name, run=running.rows), footprint))
    return measured


def _load_others(
    context: BuildContext, subjects: Sequence[Subject], feed: Feed, stack: ExitStack
) -> list[Measured]:
    """Load other runtimes; one that does not run is left out, for no engine depends on it."""
    measured = []
    for subject in subjects:
        import_runtime(subject.runtime)
        try:
            running, footprint = load_measured(subject.load, feed)
        except (BuildError, RuntimeError, MemoryError) as error:
            reason = " ".join(str(error).split())[:200]
            context.log.line(f"  {subject.runtime} {subject.precision} is left out: {reason}")
            continue
        stack.callback(close, running)
        engine = Engine(
            runtime=subject.runtime,
            precision=subject.precision,
            run=running.rows,
            every=OTHERS_EVERY,
        )
        measured.append((engine, None if subject.is_loaded else footprint))
    return measured


def _tracks(feeds: dict[Shape, Feed], opt: Sequence[Shape], decides: bool) -> list[Track]:
    least = LEAST_ROUNDS if decides else 1
    return [
        Track(shape=shape, feed=feed, weight=OPT_WEIGHT, least=least)
        if shape in opt
        else Track(shape=shape, feed=feed)
        for shape, feed in feeds.items()
    ]


def _speedups(
    candidates: Sequence[Candidate], measured: Sequence[Latencies], opt: Sequence[Shape]
) -> tuple[SpeedupRecord, ...]:
    baseline, control = (0, candidates[0].precision), len(candidates)
    return tuple(
        speedup(
            latencies, candidate=(place, candidate.precision), baseline=baseline, control=control
        )
        for latencies in measured
        if latencies.shape in opt and len(latencies.milliseconds) >= LEAST_ROUNDS
        for place, candidate in enumerate(candidates[1:], 1)
    )
