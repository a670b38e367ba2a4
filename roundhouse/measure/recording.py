"""`roundhouse bench ENDPOINT --record`: finds, holds and writes a load into the model's lock.

Where a search ended before both ends of its result were known, what is written is the highest load
that was proven to hold, with that word beside it.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from onboarding.generation_resolve import generation_deployments
from onboarding.lock import ServedCapacity, record_capacity
from onboarding.names import endpoint_name
from onboarding.text_generation.checkpoint_lock import GenerationKnee, record_knee
from roundhouse.errors import RoundhouseError
from roundhouse.measure.bench import LoadReport
from roundhouse.measure.measurement import Measurement, Outcome, samples_needed
from roundhouse.measure.options import LoadOptions
from roundhouse.measure.result import Result
from roundhouse.measure.runner import SURPLUS, EngineTest
from roundhouse.measure.served_engine import gpu_utilization_percent, served_copies, served_engine
from roundhouse.measure.slo import CLOSE_ENOUGH
from roundhouse.measure.streams import StreamMeasurement, p95
from roundhouse.measure.subject import generator_spec, is_generator
from roundhouse.paths import Paths
from roundhouse.report import Report
from roundhouse.session import Session, lock_folder, valid_tree

HOLD_SECONDS = 45.0
METERED_HOLD_SECONDS = 180.0
"""Two whole minutes of a GPU's metrics, wherever in a minute it begins."""
MAX_HOLDS = 3
CHANGED = "the endpoint changed during the load test"
PROVEN = "proven"
"""Stands beside a load that held, where a higher one was not shown to miss."""

Bench = Callable[[Paths, Report, LoadOptions], LoadReport]
Utilization = Callable[..., float | None]


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """What was written, the lock it was written to, and the load test that held it."""

    entry: ServedCapacity | GenerationKnee
    lock: Path
    report: LoadReport

    @property
    def summary(self) -> str:
        """What was recorded, in a sentence."""
        entry = self.entry
        proven = f" ({PROVEN}; more may hold)" if PROVEN in entry.tool else ""
        if isinstance(entry, GenerationKnee):
            return (
                f"One copy on {entry.instance_type} answers {entry.concurrency:g} requests at once "
                f"within the SLO{proven}: goodput {entry.goodput_requests_per_second:.3g}/s, "
                f"{entry.output_tokens_per_second:,.0f} output tokens/s."
            )
        percent = entry.gpu_utilization_percent
        gpu = "" if percent is None else f", its GPUs {percent:g} % busy"
        return (
            f"One {entry.instance_type} answers {entry.requests_per_second:.10g} requests "
            f"a second with p{entry.percentile:g} within {entry.slo_ms:g} ms{gpu}{proven}."
        )


def record_load(
    session: Session,
    options: LoadOptions,
    *,
    run: Bench,
    utilization: Utilization = gpu_utilization_percent,
) -> Recorded:
    """Measure what an endpoint holds and write it into the lock of what it serves.

    Raises RoundhouseError, and leaves the lock as it was, for what is no measurement of that. The
    reports of its load tests stay in any case.
    """
    options.require_consistent()
    if is_generator(session.paths, str(options.endpoint)):
        return _record_generator(session, options, run)
    return _record_engine(session, options, run, utilization)


def _record_engine(
    session: Session, options: LoadOptions, run: Bench, utilization: Utilization
) -> Recorded:
    """Measure a capacity and write it into the lock of the engine behind the endpoint."""
    from roundhouse import invocation
    from stacks.engine_capacity import gpus_used

    deployments = session.deployments()
    _, target = invocation.address(deployments, str(options.endpoint), options.model)
    deployment = next(deployment for deployment in deployments if target in deployment.targets)
    folder = lock_folder(session)
    name = endpoint_name(deployment.environment, deployment.name)
    served = served_engine(session.clients, deployment, target)
    gpus, percent = gpus_used(deployment.variant_of(target), target.instance_type), None
    is_metered = bool(gpus) and not session.is_local
    seconds = METERED_HOLD_SECONDS if is_metered else HOLD_SECONDS
    # A search that leaves time for the hold, at least a third.
    searching = max(options.search_seconds - seconds, options.search_seconds / 3, 1.0)
    search = run(session.paths, session.report, replace(options, seconds=searching))
    held = _hold(session, options, search, run, seconds)
    end, result, found = datetime.datetime.now(datetime.UTC), held.result, search.result.highest
    is_same = served_engine(session.clients, deployment, target) == served
    _require(held, None if is_same else CHANGED)
    test = result.test
    assert isinstance(test, EngineTest) and test.slo is not None and found is not None
    (phase,) = result.phases
    if is_metered:
        begin = end - datetime.timedelta(seconds=phase.seconds)
        with session.report.step("Reading the GPUs' utilization") as step:
            percent = utilization(session.clients("cloudwatch"), name, gpus, begin, end)
            step.finish("no metric came" if percent is None else f"{percent:g} % of each")
    word = "held" if found.is_exact else PROVEN
    capacity = ServedCapacity(
        # Rounded downward, as everything that is promised.
        requests_per_second=max(math.floor(phase.phase.start / served.count * 1000), 1) / 1000,
        rows_per_request=test.inputs.rows_per_request,
        slo_ms=test.slo.first_ms,
        percentile=Measurement.percent,
        instance_type=served.instance_type,
        server=deployment.variant_of(target).server,
        gpu_utilization_percent=percent,
        endpoint=name,
        date=result.date[:10],
        tool=f"roundhouse bench, {word} for {phase.seconds:g} s",
    )
    lock = record_capacity(folder, target.model.name, target.engine_key, capacity)
    return Recorded(entry=capacity, lock=lock, report=held)


def search_fault(result: Result) -> str | None:
    """Return why a search proved no load; None when it did."""
    if not result.is_search:
        return "the load test searched for no highest load"
    if result.broken_off:
        return "the load test was broken off"
    if result.highest is None:
        return "no load held the SLO"
    if not all(result.highest.phase.times.values()):
        return "the answers have one token each, and no time between two"
    return None


def hold_fault(result: Result) -> str | None:
    """Return why a rate was not held; None when it was."""
    if result.broken_off:
        return "the load test was broken off"
    (phase,) = result.phases
    assert phase.verdict is not None
    if phase.verdict.outcome is Outcome.held:
        return None
    rate = f"{phase.phase.start:g} a second were not held"
    return f"{rate} for {phase.seconds:g} s ({phase.verdict.outcome}: {phase.verdict.reason})"


def _hold(
    session: Session, options: LoadOptions, search: LoadReport, run: Bench, seconds: float
) -> LoadReport:
    """Hold the rate found for longer, as a search's steps are short; lower if it is not held."""
    found = search.result
    _require(search, search_fault(found))
    assert found.highest is not None and found.test.slo is not None
    rate = found.highest.load
    for left in reversed(range(MAX_HOLDS)):
        needed = math.ceil(samples_needed(Measurement.percent) * SURPLUS / rate)
        load = replace(
            options,
            rate=f"{rate:.3f}",
            seconds=max(seconds, float(needed)),
            slo=f"{found.test.slo.first_ms:.6f}",
            record=False,
        )
        held = run(session.paths, session.report, load)
        fault = hold_fault(held.result)
        if fault is None or held.result.broken_off or not left:
            break
        rate /= CLOSE_ENOUGH
    _require(held, fault)
    return held


def _record_generator(session: Session, options: LoadOptions, run: Bench) -> Recorded:
    """Search for the knee and write what one of the copies answers into the checkpoint's lock."""
    name = str(options.endpoint)
    generator_spec(session.paths, name, session.environment.name)
    tree = valid_tree(session.paths)
    (deployment,) = generation_deployments(tree, session.environment.name, (name,))
    entry = deployment.entry
    if entry is None:
        raise RoundhouseError(f"--record: {deployment.problem}")
    folder = lock_folder(session)
    served = served_copies(session.clients, deployment, entry)
    done = run(session.paths, session.report, options)
    is_same = served_copies(session.clients, deployment, entry) == served
    result = done.result
    _require(done, search_fault(result) if is_same else CHANGED)
    assert result.highest is not None
    highest, phase = result.highest, result.highest.phase
    assert isinstance(phase, StreamMeasurement)
    ttft, gap = p95(phase.ttfts_ms), p95(phase.gaps_ms)
    assert ttft is not None and gap is not None
    knee = GenerationKnee(
        concurrency=highest.load / served.count,
        goodput_requests_per_second=(phase.goodput or 0.0) / served.count,
        ttft_p95_ms=ttft,
        itl_p95_ms=gap,
        output_tokens_per_second=phase.output_tokens_per_second / served.count,
        instance_type=served.instance_type,
        endpoint=endpoint_name(deployment.environment, deployment.name),
        plan_key=deployment.plan_key,
        date=result.date[:10],
        tool=f"roundhouse bench, {'' if highest.is_exact else f'{PROVEN}, '}{served.count} copies",
    )
    lock = record_knee(folder, deployment.name, entry.checkpoint_key, knee)
    return Recorded(entry=knee, lock=lock, report=done)


def _require(done: LoadReport, fault: str | None) -> None:
    """Raise RoundhouseError with the report of a load test that is no measurement."""
    if fault is not None:
        reports = f"the report is {done.file}"
        raise RoundhouseError(f"--record: {fault}; nothing was recorded, and {reports}.")
