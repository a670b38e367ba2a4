"""Runs a load test: warm-up, phases or the search for the saturation point, and whatever ends it
early.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass, field

from roundhouse.errors import WrongAnswerError
from roundhouse.load_test.asked import Asked
from roundhouse.load_test.driving.crew import Crew, crew
from roundhouse.load_test.driving.orders import Job, Second
from roundhouse.load_test.judgement.measured import Measured
from roundhouse.load_test.judgement.saturation import FIRST_SHARE, Tried, next_rate
from roundhouse.load_test.judgement.verdict import (
    SLO_PERCENTILE,
    Outcome,
    Verdict,
    tool_limit,
    verdict,
)
from roundhouse.load_test.latencies import enough
from roundhouse.load_test.traffic import LatencyStop, Loop, Phase
from roundhouse.load_test.wording import milliseconds, rate

PER_WORKER = 12_000.0
"""Requests a second that one load process is given to begin with; signed ones cost several times as
much.
"""
PER_SIGNING_WORKER = 3_000.0
PROBE_USERS = 32
PROBE_SECONDS = 4.0
ALONE_SECONDS = 1.0
LONGEST_STEP_SECONDS = 120.0
SURPLUS = 1.15
"""More requests than the percentile needs, as arrivals vary."""
DRAIN_SECONDS = 10.0
HOPELESS = 2.0
"""A step whose median is this many SLOs is not run to its end."""


@dataclass(kw_only=True)
class Done:
    """What a load test measured. `verdicts` stand beside `phases` where there is an SLO."""

    phases: list[Measured] = field(default_factory=list)
    verdicts: list[Verdict | None] = field(default_factory=list)
    tried: list[Tried] = field(default_factory=list)
    """The search's steps, without those that were run again with more load processes."""
    probe: Measured | None = None
    stopped: str | None = None
    """The stopping condition that was met."""
    broken_off: bool = False
    workers: int = 0


Progress = Callable[[Measured], None]
"""Told every second of a phase."""

Ended = Callable[[Measured, Verdict | None], None]
"""Told of every phase that is over and counts."""


@dataclass(kw_only=True)
class Conductor:
    """One load test under way; setting `interrupted` ends it, and what was measured stays."""

    asked: Asked
    progress: Progress
    ended: Ended = lambda measured, said: None
    interrupted: asyncio.Event = field(default_factory=asyncio.Event)
    done: Done = field(default_factory=Done)

    async def conduct(self) -> Done:
        """Runs it all. Raises NotReadyError when the load processes fail."""
        async with crew(self._job(), self._first_workers()) as made:
            await self._warm_up(made)
            if self.asked.phases:
                await self._phases(made)
            else:
                await self._search(made)
            self.done.workers = made.size
        self.done.broken_off = self.interrupted.is_set()
        return self.done

    async def _phases(self, made: Crew) -> None:
        for phase in self.asked.phases:
            if self.over:
                return
            await self._kept(made, phase, self.asked.stop)

    async def _search(self, made: Crew) -> None:
        """Steps of constant rates; a step that the tool itself spoils is run again with more load
        processes.
        """
        first = self.asked.first_rate
        if await self._is_slow_alone(made):
            return
        if first is None:
            probe = self.done.probe = await self._run(
                made, _closed("probe", PROBE_USERS, PROBE_SECONDS), None
            )
            first = max(probe.answered_per_second * FIRST_SHARE, 0.5)
        tried = self.done.tried
        while not self.over and (each := next_rate(tried, first)) is not None:
            measured = await self._kept(made, self._step(each, len(tried) + 1), self._hopeless())
            found = self.done.verdicts[-1]
            if found is None or (measured.dropped and self.interrupted.is_set()):
                return
            if found.outcome is Outcome.tool and await self._grown(made):
                continue
            tried.append(Tried(rate=each, outcome=found.outcome))

    async def _is_slow_alone(self, made: Crew) -> bool:
        """Whether even a single user waits longer than the SLO: then no rate holds it, however long
        it is searched for.
        """
        alone = await self._run(made, _closed("one user", 1, ALONE_SECONDS), None)
        p50, slo = alone.latency.unproven(50), self.asked.slo_ms
        if slo is None or not p50 > slo:
            return False
        self.done.phases.append(alone)
        reason = f"one user alone waits {milliseconds(p50)} in the median"
        self.done.verdicts.append(Verdict(outcome=Outcome.missed, reason=reason))
        return True

    @property
    def over(self) -> bool:
        """Whether nothing more is to be run."""
        return self.interrupted.is_set() or self.done.stopped is not None

    async def _kept(self, made: Crew, phase: Phase, stop: LatencyStop | None) -> Measured:
        measured = await self._run(made, phase, stop)
        self.done.phases.append(measured)
        slo = self.asked.slo_ms
        self.done.verdicts.append(
            None if slo is None or self.interrupted.is_set() else verdict(measured, slo)
        )
        if self.asked.phases and measured.ended_early is not None and not self.interrupted.is_set():
            self.done.stopped = measured.ended_early
        self.ended(measured, self.done.verdicts[-1])
        return measured

    async def _run(self, made: Crew, phase: Phase, stop: LatencyStop | None) -> Measured:
        measured, halt, ends = Measured(phase=phase, workers=made.size), asyncio.Event(), [-1]

        def hear(said: Second) -> None:
            measured.add(said)
            if said.second != ends[0]:
                ends[0] = said.second
                self.progress(measured)
                reason = self._reason(measured, stop)
                if reason is not None and not halt.is_set() and said.second < phase.seconds:
                    measured.ended_early = reason
                    halt.set()

        watching = asyncio.create_task(self._watch(halt, measured))
        try:
            measured.dropped = await made.run(phase, hear, halt)
        finally:
            watching.cancel()
        return measured

    def _reason(self, measured: Measured, stop: LatencyStop | None) -> str | None:
        """Why a phase should end now."""
        if stop is not None and measured.is_above(stop):
            return str(stop)
        earlier = sum(each.answered for each in self.done.phases)
        most = self.asked.most_requests
        if most is not None and measured.phase.counted and earlier + measured.answered >= most:
            return f"{most:,} requests were answered"
        return None

    async def _watch(self, halt: asyncio.Event, measured: Measured) -> None:
        await self.interrupted.wait()
        measured.ended_early = "broken off"
        halt.set()

    async def _warm_up(self, made: Crew) -> None:
        """A little of the first phase's load, not counted: connections open, caches fill."""
        if self.asked.warm_up_seconds <= 0:
            return
        phase = _closed("warm-up", 4, self.asked.warm_up_seconds)
        if self.asked.phases and self.asked.phases[0].loop is Loop.open:
            first = self.asked.phases[0]
            least = max(first.start, first.spawn / 60)
            phase = Phase(
                name="warm-up",
                loop=Loop.open,
                start=least,
                seconds=self.asked.warm_up_seconds,
                counted=False,
            )
        measured = await self._run(made, phase, None)
        if measured.failed and not measured.answered:
            reason, _ = measured.faults.most_common(1)[0]
            raise WrongAnswerError(
                f"{self.asked.subject}: all {measured.failed:,} requests of the warm-up failed ({reason})."
            )

    async def _grown(self, made: Crew) -> bool:
        """Whether there are more load processes now."""
        if self.asked.workers is not None or made.size >= self.asked.most_workers:
            return False
        await made.grow(min(made.size, self.asked.most_workers - made.size))
        return True

    def _step(self, per_second: float, number: int) -> Phase:
        """Long enough for its p99."""
        needed = enough(SLO_PERCENTILE) * SURPLUS / per_second
        seconds = float(math.ceil(min(max(self.asked.step_seconds, needed), LONGEST_STEP_SECONDS)))
        return Phase(
            name=f"step {number}: {rate(per_second)}/s",
            loop=Loop.open,
            start=per_second,
            seconds=seconds,
        )

    def _hopeless(self) -> LatencyStop | None:
        return (
            None
            if self.asked.slo_ms is None
            else LatencyStop(percentile=50, milliseconds=HOPELESS * self.asked.slo_ms)
        )

    def _first_workers(self) -> int:
        if self.asked.workers is not None:
            return self.asked.workers
        highest = max(
            (each.highest for each in self.asked.phases if each.loop is Loop.open), default=0.0
        )
        each = PER_WORKER if self.asked.destination.region is None else PER_SIGNING_WORKER
        return min(max(1, math.ceil(highest / each)), self.asked.most_workers)

    def _job(self) -> Job:
        interval = self.asked.expected_interval_ms
        return Job(
            destination=self.asked.destination,
            bodies=self.asked.bodies,
            arrivals=self.asked.arrivals,
            seed=self.asked.seed,
            most_connections=self.asked.most_connections,
            timeout_seconds=self.asked.timeout_seconds,
            drain_seconds=min(DRAIN_SECONDS, self.asked.timeout_seconds),
            expected_interval_seconds=None if interval is None else interval / 1000,
        )


def limits(done: Done, slo_ms: float | None) -> tuple[str, ...]:
    """Where the load tool itself was the limit, phase by phase."""
    found = ((each, tool_limit(each, slo_ms)) for each in done.phases)
    return tuple(f"{each.phase.name}: {reason}" for each, reason in found if reason is not None)


def _closed(name: str, users: int, seconds: float) -> Phase:
    return Phase(name=name, loop=Loop.closed, start=users, seconds=seconds, counted=False)
