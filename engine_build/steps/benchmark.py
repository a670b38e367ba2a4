"""The benchmark step: every engine, and whatever else this machine can run of the model.

Another runtime's footprint is measured in this process, and its host memory is a lower bound where
something else had loaded its library.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

from engine_build.datasets.dataset import Feed, Shape
from engine_build.errors import BuildError, one_line
from engine_build.evaluation.decision import (
    EIGHT_BITS,
    LEAST_ROUNDS,
    Candidate,
    Evaluation,
    decide,
    keep_given,
    left_out,
    speedup,
    with_sizes,
)
from engine_build.evaluation.footprint import (
    Footprint,
    format_footprints,
    load_measured,
    measure_in_child,
)
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
    SETTLING_SECONDS,
    Load,
    Subject,
    close,
    import_runtime,
    load_engine,
    other_subjects,
)
from engine_build.quantization.given_qdq import given_precision
from engine_build.request import BuildContext, profile_shape
from engine_build.steps.reference import reference_note
from engine_build.steps.step import BuildState
from onboarding.manifest import RuntimeRecord

OPT_WEIGHT = 3.0
"""Opt shapes decide between candidates, so they have more of the benchmark's time."""
OTHERS_EVERY = 4
"""What cannot be chosen runs in every fourth round."""
Measured = list[tuple[Engine, Footprint | None]]
"""None for the duplicate control, and for what was loaded before."""


def choose_candidate(context: BuildContext, state: BuildState, *, load: Load = load_engine) -> None:
    """Time every verified candidate, the baseline first, and other runtimes, and choose one."""
    spec, findings = context.request.model.engine, state.findings
    # Where speed decides, opt shapes have the rounds that an interval needs, however long.
    by_speed = state.may_leave_out and any(map(findings.may_be_chosen, EIGHT_BITS))
    opt = dict.fromkeys(profile_shape(profile, 1) for profile in spec.optimization_profiles)
    least = LEAST_ROUNDS if by_speed else 1
    measured, latencies = _measure(context, state, tuple(opt), least, load)
    summary = summaries([engine for engine, _ in measured], latencies)
    footprints = [(engine, footprint) for engine, footprint in measured if footprint is not None]
    context.log.line(format_latencies(summary))
    context.log.line(format_footprints(footprints))
    compared = [item for item in latencies if item.shape in opt]
    # Every candidate against the first, and against the first's copy, which was loaded last.
    first, *rest = state.candidates
    speedups = tuple(
        speedup(
            item,
            candidate=(index, candidate.precision),
            baseline=(0, first.precision),
            control=len(state.candidates),
        )
        for item in compared
        if len(item.milliseconds) >= LEAST_ROUNDS
        for index, candidate in enumerate(rest, 1)
    )
    given = given_precision(state.networks)
    decision = (
        decide(spec.precision, findings, speedups)
        if given is None
        else keep_given(given, findings, reference_note(context.request, given))
    )
    context.log.line(f"decision: {decision.sentence}")
    precision = decision.precision
    runtime = context.request.runtime.name
    paths: dict[tuple[str, str], Path] = {
        (runtime, item.precision): item.path for item in state.candidates
    }
    others = [record for name, record in findings.accuracy.items() if name != precision]
    records = []
    for engine, footprint in footprints:
        record = RuntimeRecord(
            runtime=engine.runtime, precision=engine.precision, **asdict(footprint)
        )
        # The build's own have paths, and so sizes.
        path = paths.get((engine.runtime, engine.precision))
        records.append(record if path is None else with_sizes(record, path))
    state.evaluation = Evaluation(
        chosen=next(item for item in state.candidates if item.precision == precision),
        decision=decision,
        accuracy=(*state.network_records, *others, findings.accuracy[precision]),
        benchmark=summary,
        speedups=speedups,
        runtimes=tuple(records),
        left_out=left_out(
            spec.precision, findings, is_cpu=context.request.is_cpu, is_given=given is not None
        ),
    )


def _measure(
    context: BuildContext, state: BuildState, opt: Sequence[Shape], least: int, load: Load
) -> tuple[Measured, Sequence[Latencies]]:
    """Measure at min, opt and max of every profile, each shape once."""
    request, samples = context.request, context.request.validation.values
    profiles = request.model.engine.optimization_profiles
    shapes = dict.fromkeys(
        profile_shape(profile, size) for profile in profiles for size in range(3)
    )
    feeds = {shape: state.encoder.shaped(samples, shape) for shape in shapes}
    tracks = [
        Track(shape=shape, feed=feed, weight=OPT_WEIGHT, least=least)
        if shape in opt
        else Track(shape=shape, feed=feed)
        for shape, feed in feeds.items()
    ]
    # What is no candidate: beside a plan the float network, and the source model.
    networks, source = {"fp32": state.networks["float"].path}, state.model
    if request.library == "pytorch":
        source = None  # A program's candidates are the source model's own.
    elif not request.is_plan or given_precision(state.networks) is not None:
        networks = {}
    others = other_subjects(networks, source)
    intent = (
        f"{len(state.candidates)} engines, a duplicate control and {len(others)} other "
        f"runtimes, {len(feeds)} shapes, random order"
    )
    with context.log.step("benchmark", intent), ExitStack() as stack:
        feed = feeds[request.opt_shape]
        measured = _load_candidates(context, state.candidates, feed, load, stack)
        measured += _load_others(context, others, feed, stack)
        seconds = context.settings.benchmark_seconds
        engines = [engine for engine, _ in measured]
        return measured, measure_latencies(engines, tracks, seconds=seconds)


def _load_candidates(
    context: BuildContext, candidates: Sequence[Candidate], feed: Feed, load: Load, stack: ExitStack
) -> Measured:
    """Load the candidates, and a second copy of the first: memory's layout differs by copy."""
    runtime, scratch = context.request.library, context.work.scratch("benchmark")
    # Each in a process of its own, before this one fills its memory and the GPU's.
    subjects: list[tuple[str, Candidate, Footprint | None]] = [
        (item.precision, item, measure_in_child(item.path, feed, scratch, context.runner))
        for item in candidates
    ]
    measured = []
    for name, candidate, footprint in (
        *subjects,
        (candidates[0].precision + CONTROL, candidates[0], None),
    ):
        running = load(runtime, candidate.path)
        stack.callback(close, running)
        settling = SETTLING_SECONDS if context.request.is_plan else 0.0
        engine = Engine(runtime=runtime, precision=name, run=running.rows, settling=settling)
        measured.append((engine, footprint))
    return measured


def _load_others(
    context: BuildContext, subjects: Sequence[Subject], feed: Feed, stack: ExitStack
) -> Measured:
    """Load other runtimes; one that does not run is left out, for no engine depends on it."""
    measured: Measured = []
    for subject in subjects:
        runtime, precision = subject.runtime, subject.precision
        import_runtime(runtime)
        try:
            running, footprint = load_measured(subject.load, feed)
        except (BuildError, RuntimeError, MemoryError) as error:
            context.log.line(f"  {runtime} {precision} is left out: {one_line(error, 200)}")
            continue
        stack.callback(close, running)
        engine = Engine(runtime=runtime, precision=precision, run=running.rows, every=OTHERS_EVERY)
        measured.append((engine, None if subject.is_loaded else footprint))
    return measured
