"""The benchmark step: every engine, and whatever else this machine can run of the model, side by
side.

What a rival adds is measured in this process, and its host memory is a lower bound where another
had loaded its library.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial

from engine_build.context import BuildContext
from engine_build.datasets.feed import Feed, Shape
from engine_build.errors import BuildError
from engine_build.evaluation.comparison import holding_table
from engine_build.evaluation.decision import LEAST_ROUNDS, speedup
from engine_build.evaluation.footprint import Holding, held, loading
from engine_build.evaluation.latency import (
    CONTROL,
    Latencies,
    Subject,
    Track,
    latencies,
    summaries,
    table,
)
from engine_build.evaluation.runtimes import (
    Contender,
    Offer,
    Opening,
    Running,
    absences,
    contenders,
    import_runtime,
    opened,
    runtimes,
)
from engine_build.steps.compile import Candidate
from engine_build.steps.prepare import Prepared
from engine_build.steps.verify import QDQ, close
from onboarding.manifest import BenchmarkRecord, RuntimeRecord, SpeedupRecord
from onboarding.model_spec import OptimizationProfileSpec

OPT_WEIGHT = 3.0
"""Opt shapes decide between candidates, so they have more of the benchmark's time."""
RIVALS_EVERY = 4
"""What cannot be chosen takes part in every fourth round."""


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """What was measured."""

    benchmark: tuple[BenchmarkRecord, ...]
    speedups: tuple[SpeedupRecord, ...]
    runtimes: tuple[RuntimeRecord, ...]
    """The engines first, in the order of the candidates."""


@dataclass(frozen=True, kw_only=True)
class _Entry:
    """One subject, and what it takes to hold it; None for the control, which tells nothing new, and
    what was loaded before.
    """

    subject: Subject
    holding: Holding | None


def measured(
    context: BuildContext,
    prepared: Prepared,
    candidates: Sequence[Candidate],
    *,
    decides: bool,
    opening: Opening = opened,
) -> Measurement:
    """Measures candidates, the first being the baseline, and their rivals.

    `decides`: as many rounds as an interval needs are run at opt shapes, however long they take.
    """
    feeds = _feeds(context, prepared)
    here = runtimes()
    rivals = contenders(_offer(context, prepared), here)
    intent = f"{len(candidates)} engines, a duplicate control and {len(rivals)} rivals, {len(feeds)} shapes, random order"
    with context.log.step("benchmark", intent), ExitStack() as stack:
        if (missing := absences(here)) is not None:
            context.log.line(f"  {missing}")
        feed = feeds[context.request.opt_shape]
        entries = [
            *_engines(context, candidates, feed, opening, stack),
            *_rivals(context, rivals, feed, stack),
        ]
        subjects = [entry.subject for entry in entries]
        found = latencies(
            subjects,
            _tracks(context, feeds, decides=decides),
            seconds=context.settings.benchmark_seconds,
        )
    summary = summaries(subjects, found)
    pairs = [(entry.subject, entry.holding) for entry in entries if entry.holding is not None]
    context.log.line(table(summary))
    context.log.line(holding_table(pairs))
    return Measurement(
        benchmark=tuple(BenchmarkRecord(**asdict(each)) for each in summary),
        speedups=_speedups(context, candidates, found),
        runtimes=tuple(_record(subject, holding) for subject, holding in pairs),
    )


def shapes(profiles: Sequence[OptimizationProfileSpec]) -> tuple[Shape, ...]:
    """min, opt and max of every profile, each once."""
    return tuple(
        dict.fromkeys(_shape(profile, place) for profile in profiles for place in range(3))
    )


def opt_shapes(profiles: Sequence[OptimizationProfileSpec]) -> tuple[Shape, ...]:
    """What every profile is tuned for, each once."""
    return tuple(dict.fromkeys(_shape(profile, 1) for profile in profiles))


def _shape(profile: OptimizationProfileSpec, place: int) -> Shape:
    return Shape(
        batch=profile.batch[place],
        sequence=None if profile.sequence is None else profile.sequence[place],
    )


def _feeds(context: BuildContext, prepared: Prepared) -> dict[Shape, Feed]:
    samples = context.request.validation.values
    return {
        shape: prepared.encoder.shaped(samples, shape)
        for shape in shapes(context.request.model.engine.optimization_profiles)
    }


def _offer(context: BuildContext, prepared: Prepared) -> Offer:
    """What is no candidate: on a CPU the float network is one, and on a GPU the Q/DQ network is of
    no use to others.
    """
    wanted = {QDQ: "int8"} if context.request.is_cpu else {"fp32": "float"}
    networks = {
        name: prepared.networks[each].path
        for name, each in wanted.items()
        if each in prepared.networks
    }
    return Offer(networks=networks, source=prepared.source)


def _engines(
    context: BuildContext,
    candidates: Sequence[Candidate],
    feed: Feed,
    opening: Opening,
    stack: ExitStack,
) -> list[_Entry]:
    """The candidates, and a second copy of the first: two copies of one session would hide what
    memory's layout does.
    """
    runtime, scratch = context.request.runtime.name, context.work.scratch("benchmark")
    # Each in a process of its own, before this one fills its memory and the GPU's.
    holdings = [loading(each.path, feed, scratch, context.runner) for each in candidates]
    named = [
        (each.precision, each.path, holding)
        for each, holding in zip(candidates, holdings, strict=True)
    ]
    entries = []
    for precision, path, holding in [
        *named,
        (candidates[0].precision + CONTROL, candidates[0].path, None),
    ]:
        engine = _kept(opening(runtime, path), stack)
        entries.append(
            _Entry(
                subject=Subject(runtime=runtime, precision=precision, run=engine.rows),
                holding=holding,
            )
        )
    return entries


def _rivals(
    context: BuildContext, rivals: Sequence[Contender], feed: Feed, stack: ExitStack
) -> list[_Entry]:
    """What else runs the model; one that does not is left out, for no engine depends on it."""
    entries = []
    for each in rivals:
        import_runtime(each.runtime)
        try:
            running, holding = held(each.load, feed)
        except (BuildError, RuntimeError, MemoryError) as error:
            reason = " ".join(str(error).split())[:200]
            context.log.line(f"  {each.runtime} {each.precision} is left out: {reason}")
            continue
        _kept(running, stack)
        subject = Subject(
            runtime=each.runtime, precision=each.precision, run=running.rows, every=RIVALS_EVERY
        )
        entries.append(_Entry(subject=subject, holding=None if each.is_loaded else holding))
    return entries


def _kept(engine: Running, stack: ExitStack) -> Running:
    stack.callback(partial(close, engine))
    return engine


def _record(subject: Subject, holding: Holding) -> RuntimeRecord:
    return RuntimeRecord(runtime=subject.runtime, precision=subject.precision, **asdict(holding))


def _tracks(context: BuildContext, feeds: dict[Shape, Feed], *, decides: bool) -> list[Track]:
    opt = opt_shapes(context.request.model.engine.optimization_profiles)
    least = LEAST_ROUNDS if decides else 1
    return [
        Track(shape=shape, feed=feed, weight=OPT_WEIGHT, least=least)
        if shape in opt
        else Track(shape=shape, feed=feed)
        for shape, feed in feeds.items()
    ]


def _speedups(
    context: BuildContext, candidates: Sequence[Candidate], found: Sequence[Latencies]
) -> tuple[SpeedupRecord, ...]:
    opt = opt_shapes(context.request.model.engine.optimization_profiles)
    baseline, control = (0, candidates[0].precision), len(candidates)
    return tuple(
        speedup(each, candidate=(place, candidate.precision), baseline=baseline, control=control)
        for each in found
        if each.shape in opt and len(each.milliseconds) >= LEAST_ROUNDS
        for place, candidate in enumerate(candidates[1:], 1)
    )
