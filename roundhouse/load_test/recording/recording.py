"""`roundhouse bench ENDPOINT --record`: finds the highest rate within the SLO, holds it, and writes
it into the model's lock.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from onboarding.deployment import VARIANT, Deployment, Target
from onboarding.lock import ServedCapacity, record_capacity
from onboarding.names import endpoint_name
from roundhouse.errors import RoundhouseError
from roundhouse.load_test.benching import Benched, bench
from roundhouse.load_test.judgement.verdict import SLO_PERCENTILE
from roundhouse.load_test.latencies import enough
from roundhouse.load_test.recording.fitness import next_lower, unfit_hold, unfit_search
from roundhouse.load_test.recording.gpu_utilization import Watch, gpu_utilization_percent
from roundhouse.load_test.recording.served_engine import Serving, serving
from roundhouse.load_test.wishes import Wishes, require_sound
from roundhouse.paths import Paths
from roundhouse.report import Report
from roundhouse.session import Session

HOLD_SECONDS = 180.0
"""Two whole minutes of metrics, wherever in a minute it begins."""
MOST_HOLDS = 3
SURPLUS = 1.15

Bench = Callable[[Paths, Report, Wishes], Benched]
Moment = datetime.datetime
Utilization = Callable[..., float | None]


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """A capacity, the lock it was written to, and the load test that held it."""

    capacity: ServedCapacity
    lock: Path
    benched: Benched

    @property
    def told(self) -> str:
        """What was recorded, in a sentence."""
        found = self.capacity
        gpu = (
            ""
            if found.gpu_utilization_percent is None
            else f", its GPUs {found.gpu_utilization_percent:g} % busy"
        )
        rate = f"{found.requests_per_second:.10g} requests a second"
        return f"One {found.instance_type} answers {rate} with p{found.percentile:g} within {found.slo_ms:g} ms{gpu}."


def record(
    session: Session,
    wishes: Wishes,
    *,
    run: Bench = bench,
    utilization: Utilization = gpu_utilization_percent,
    hold_seconds: float = HOLD_SECONDS,
) -> Recorded:
    """Measures and writes. Raises RoundhouseError, and leaves the lock as it was, for whatever is
    no capacity of its engine.

    The reports of its load tests stay, whatever comes of it.
    """
    require_sound(wishes)
    deployment, target = _subject(session, wishes)
    folder = lock_folder(session)
    before = serving(session.clients, deployment, target)
    search = run(session.paths, session.report, wishes)
    _require(unfit_search(search.result), search)
    held, begin, end = _held(session, wishes, search, run, hold_seconds)
    if serving(session.clients, deployment, target) != before:
        raise RoundhouseError(
            "--record: the endpoint changed during the load test; nothing was recorded, measure it again."
        )
    percent = _percent(session, deployment, target, (begin, end), utilization)
    capacity = _capacity(deployment, held, before, percent)
    lock = record_capacity(folder, target.model.name, target.engine_key, capacity)
    return Recorded(capacity=capacity, lock=lock, benched=held)


def _subject(session: Session, wishes: Wishes) -> tuple[Deployment, Target]:
    from roundhouse import invocation

    assert wishes.endpoint is not None
    deployments = session.deployments()
    _, target = invocation.address(deployments, wishes.endpoint, wishes.model)
    return next(each for each in deployments if target in each.targets), target


def lock_folder(session: Session) -> Path:
    """Where the environment's locks lie.

    Raises RoundhouseError for reviewed ones of the local cloud, whose machine is any.
    """
    folder = session.paths.tree / session.environment.locks
    scratch = (session.paths.build, session.paths.tree / "build")
    if session.is_local and not any(
        folder.resolve().is_relative_to(each.resolve()) for each in scratch
    ):
        raise RoundhouseError(
            f"--record: {session.environment.locks}/ holds reviewed locks, and the local cloud's speed is this machine's; measure "
            f"an endpoint on AWS, or let environments/{session.environment.name}.yaml say `locks: build/local/locks`."
        )
    return folder


def _held(
    session: Session, wishes: Wishes, search: Benched, run: Bench, hold_seconds: float
) -> tuple[Benched, Moment, Moment]:
    """The search's steps are short: only a rate that is held for minutes counts, a little lower
    when it is not.
    """
    found = search.result.saturation
    assert found is not None and found.rate is not None
    rate, reason = found.rate, "nothing was held"
    for _ in range(MOST_HOLDS):
        seconds = max(hold_seconds, math.ceil(enough(SLO_PERCENTILE) * SURPLUS / rate))
        load = replace(
            wishes,
            rate=rate,
            seconds=seconds,
            slo_ms=search.result.slo_ms,
            first_rate=None,
            record=False,
        )
        begin = datetime.datetime.now(datetime.UTC)
        held = run(session.paths, session.report, load)
        end = datetime.datetime.now(datetime.UTC)
        unfit = unfit_hold(held.result)
        if unfit is None:
            return held, max(begin, end - datetime.timedelta(seconds=seconds)), end
        if held.result.broken_off:
            _require(unfit, held)
        rate, reason = next_lower(rate), unfit
    raise RoundhouseError(
        f"--record: {reason}; nothing was recorded, and the reports are in {search.page.parent}."
    )


def _require(unfit: str | None, benched: Benched) -> None:
    if unfit is not None:
        raise RoundhouseError(
            f"--record: {unfit}; nothing was recorded, and the report is {benched.page}."
        )


def _percent(
    session: Session,
    deployment: Deployment,
    target: Target,
    while_held: tuple[Moment, Moment],
    utilization: Utilization,
) -> float | None:
    """None on a CPU, in the local cloud, and where no metric came."""
    from stacks.capacity.engine import gpus_used

    gpus = gpus_used(deployment, target.instance_type)
    if gpus == 0 or session.is_local:
        return None
    watch = Watch(
        endpoint=endpoint_name(deployment.environment, deployment.name), variant=VARIANT, gpus=gpus
    )
    with session.report.step("Reading the GPUs' utilization") as step:
        found = utilization(session.clients("cloudwatch"), watch, *while_held)
        step.done("no metric came" if found is None else f"{found:g} % of each")
    return found


def _capacity(
    deployment: Deployment, held: Benched, served: Serving, percent: float | None
) -> ServedCapacity:
    result = held.result
    (phase,) = result.phases
    assert result.slo_ms is not None
    return ServedCapacity(
        # Rounded downward, as everything that is promised.
        requests_per_second=max(math.floor(phase.start / served.instances * 1000), 1) / 1000,
        rows_per_request=int(result.inputs["rows_per_request"]),
        slo_ms=result.slo_ms,
        percentile=SLO_PERCENTILE,
        instance_type=served.instance_type,
        server=deployment.server,
        gpu_utilization_percent=percent,
        endpoint=endpoint_name(deployment.environment, deployment.name),
        date=result.circumstances.date[:10],
        tool=f"roundhouse bench, held for {phase.seconds:g} s",
    )
