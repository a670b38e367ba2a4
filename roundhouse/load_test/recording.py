"""`roundhouse bench ENDPOINT --record`: finds, holds and writes a capacity into the lock."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from onboarding.lock import ServedCapacity, record_capacity
from onboarding.names import endpoint_name
from roundhouse.errors import RoundhouseError
from roundhouse.load_test.bench import LoadReport
from roundhouse.load_test.load_test import SURPLUS
from roundhouse.load_test.measurement import Outcome, samples_needed
from roundhouse.load_test.options import LoadOptions
from roundhouse.load_test.result import LoadResult
from roundhouse.load_test.saturation import CLOSE_ENOUGH, SLO_PERCENTILE
from roundhouse.load_test.served_engine import gpu_utilization_percent, served_engine
from roundhouse.paths import Paths
from roundhouse.report import Report
from roundhouse.session import Session, lock_folder

HOLD_SECONDS = 180.0
"""Two whole minutes of metrics, wherever in a minute it begins."""
MAX_HOLDS = 3

Bench = Callable[[Paths, Report, LoadOptions], LoadReport]
Utilization = Callable[..., float | None]


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """A capacity, the lock it was written to, and the load test that held it."""

    capacity: ServedCapacity
    lock: Path
    load_report: LoadReport

    @property
    def summary(self) -> str:
        """What was recorded, in a sentence."""
        capacity = self.capacity
        percent = capacity.gpu_utilization_percent
        gpu = "" if percent is None else f", its GPUs {percent:g} % busy"
        return (
            f"One {capacity.instance_type} answers {capacity.requests_per_second:.10g} requests "
            f"a second with p{capacity.percentile:g} within {capacity.slo_ms:g} ms{gpu}."
        )


def record(
    session: Session,
    options: LoadOptions,
    *,
    run: Bench,
    utilization: Utilization = gpu_utilization_percent,
) -> Recorded:
    """Measure a capacity and write it into the lock of the model behind the endpoint.

    Raises RoundhouseError, and leaves the lock as it was, for what is no capacity of its engine.
    The reports of its load tests stay in any case.
    """
    from roundhouse import invocation
    from stacks.capacity.engine import gpus_used

    options.require_consistent()
    deployments = session.deployments()
    _, target = invocation.address(deployments, str(options.endpoint), options.model)
    deployment = next(deployment for deployment in deployments if target in deployment.targets)
    folder = lock_folder(session, "--record")
    name = endpoint_name(deployment.environment, deployment.name)
    served = served_engine(session.clients, deployment, target)
    held = _hold(session, options, run(session.paths, session.report, options), run)
    end = datetime.datetime.now(datetime.UTC)
    if served_engine(session.clients, deployment, target) != served:
        raise RoundhouseError(
            "--record: the endpoint changed during the load test; nothing was recorded, "
            "measure it again."
        )
    (phase,), test = held.result.phases, held.result.test
    gpus, percent = gpus_used(deployment.variant_of(target), target.instance_type), None
    if gpus and not session.is_local:
        begin = end - datetime.timedelta(seconds=phase.seconds)
        with session.report.step("Reading the GPUs' utilization") as step:
            percent = utilization(session.clients("cloudwatch"), name, gpus, begin, end)
            step.finish("no metric came" if percent is None else f"{percent:g} % of each")
    assert test.slo_ms is not None
    capacity = ServedCapacity(
        # Rounded downward, as everything that is promised.
        requests_per_second=max(math.floor(phase.phase.start / served.instances * 1000), 1) / 1000,
        rows_per_request=test.inputs.rows_per_request,
        slo_ms=test.slo_ms,
        percentile=SLO_PERCENTILE,
        instance_type=served.instance_type,
        server=deployment.variant_of(target).server,
        gpu_utilization_percent=percent,
        endpoint=name,
        date=held.result.circumstances.date[:10],
        tool=f"roundhouse bench, held for {phase.seconds:g} s",
    )
    lock = record_capacity(folder, target.model.name, target.engine_key, capacity)
    return Recorded(capacity=capacity, lock=lock, load_report=held)


def search_fault(result: LoadResult) -> str | None:
    """Return why a search did not find the highest rate within the SLO; None when it did."""
    saturation = result.saturation
    if saturation is None:
        return "the load test searched for no saturation point"
    if (fault := _load_fault(result)) is not None:
        return fault
    if saturation.rate is None:
        return "no rate held the SLO"
    if saturation.exact:
        return None
    verdicts = [(phase.phase.name, phase.verdict) for phase in result.phases]
    doubts = [
        f" ({name}: {verdict.outcome}, {verdict.reason})"
        for name, verdict in verdicts
        if verdict is not None and verdict.outcome not in (Outcome.held, Outcome.missed)
    ]
    reason = "".join(doubts[-1:])
    return f"the highest rate was not found, only that {saturation.rate:g} a second holds{reason}"


def hold_fault(result: LoadResult) -> str | None:
    """Return why a rate was not held; None when it was."""
    if (fault := _load_fault(result)) is not None:
        return fault
    (phase,) = result.phases
    assert phase.verdict is not None
    if phase.verdict.outcome is Outcome.held:
        return None
    rate = f"{phase.phase.start:g} a second were not held"
    return f"{rate} for {phase.seconds:g} s ({phase.verdict.reason})"


def _load_fault(result: LoadResult) -> str | None:
    if result.broken_off:
        return "the load test was broken off"
    if result.chief_tool_limit is not None:
        return f"the load tool was part of what it measured ({result.chief_tool_limit})"
    return None


def _hold(session: Session, options: LoadOptions, search: LoadReport, run: Bench) -> LoadReport:
    """Hold the rate found for minutes, as a search's steps are short; lower if it is not held."""

    def refusal(reports: str) -> RoundhouseError:
        return RoundhouseError(f"--record: {fault}; nothing was recorded, and {reports}.")

    if (fault := search_fault(search.result)) is not None:
        raise refusal(f"the report is {search.page}")
    saturation = search.result.saturation
    assert saturation is not None and saturation.rate is not None
    rate = saturation.rate
    for _ in range(MAX_HOLDS):
        needed = math.ceil(samples_needed(SLO_PERCENTILE) * SURPLUS / rate)
        seconds, slo = max(HOLD_SECONDS, float(needed)), search.result.test.slo_ms
        load = replace(options, rate=rate, seconds=seconds, slo=slo, first_rate=None, record=False)
        held = run(session.paths, session.report, load)
        if (fault := hold_fault(held.result)) is None:
            return held
        if held.result.broken_off:
            raise refusal(f"the report is {held.page}")
        rate /= CLOSE_ENOUGH
    raise refusal(f"the reports are in {search.page.parent}")
