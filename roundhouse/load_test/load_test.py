"""Runs a load test: warm-up, then its phases or the search for the saturation point."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass, field

from engine_build.card.render import milliseconds, per_second
from roundhouse.errors import WrongAnswerError
from roundhouse.load_test.destination import Destination, Requests, signer
from roundhouse.load_test.driver import Driver, open_driver
from roundhouse.load_test.inputs import Inputs
from roundhouse.load_test.measurement import Measurement, samples_needed
from roundhouse.load_test.options import LatencyStop, LoadOptions, Loop, Phase
from roundhouse.load_test.saturation import (
    SLO_PERCENTILE,
    Outcome,
    Step,
    Verdict,
    next_rate,
    verdict,
)

PROBE_USERS = 32
PROBE_SECONDS = 4.0
SINGLE_USER_SECONDS = 1.0
FIRST_SHARE = 0.3
"""Of the throughput that the probe reached: where the search begins."""
LONGEST_STEP_SECONDS = 120.0
SURPLUS = 1.15
"""More requests than the percentile needs, as arrivals vary."""
DRAIN_SECONDS = 10.0
HOPELESS_SLOS = 2.0
"""A step whose median is this many SLOs is not run to its end."""


@dataclass(frozen=True, kw_only=True)
class LoadTest:
    """A load test; without phases it searches for the saturation point."""

    subject: str
    """An endpoint with its model, or a URL."""
    destination: Destination
    inputs: Inputs
    slo_ms: float | None
    phases: tuple[Phase, ...]
    stop: LatencyStop | None
    options: LoadOptions


@dataclass(kw_only=True)
class Measured:
    """Phases that were run; `verdicts` stand beside them where there is an SLO."""

    phases: list[Measurement] = field(default_factory=list)
    verdicts: list[Verdict | None] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    probe: Measurement | None = None
    stopped: str | None = None
    """The stopping condition that was met."""
    interrupted: bool = False


@dataclass(kw_only=True)
class Runner:
    """One load test under way; setting `interrupted` ends it, and what was measured stays."""

    test: LoadTest
    on_second: Callable[[Measurement], None] = lambda measurement: None
    on_phase: Callable[[Measurement, Verdict | None], None] = lambda measurement, result: None
    interrupted: asyncio.Event = field(default_factory=asyncio.Event)
    measured: Measured = field(default_factory=Measured)

    async def run(self) -> Measured:
        """Run it all. Raises WrongAnswerError when the whole warm-up fails, AwsError."""
        test, options = self.test, self.test.options
        sign = signer(test.destination)
        requests = Requests(test.destination, test.inputs.bodies, options.seed, sign)
        async with open_driver(
            test.destination,
            requests,
            arrivals=options.arrivals,
            seed=options.seed,
            connections=options.connections,
            timeout_seconds=options.timeout,
            drain_seconds=min(DRAIN_SECONDS, options.timeout),
        ) as driver:
            await self._warm_up(driver)
            if test.phases:
                await self._run_phases(driver)
            else:
                await self._search(driver)
        self.measured.interrupted = self.interrupted.is_set()
        return self.measured

    async def _run_phases(self, driver: Driver) -> None:
        for phase in self.test.phases:
            if self.interrupted.is_set() or self.measured.stopped is not None:
                return
            measurement = await self._run_counted(driver, phase, self.test.stop)
            if not self.interrupted.is_set():
                self.measured.stopped = measurement.ended_early

    async def _search(self, driver: Driver) -> None:
        first, slo_ms = self.test.options.first_rate, self.test.slo_ms
        assert slo_ms is not None
        if await self._single_user_misses(driver, slo_ms):
            return
        if first is None:
            probe = _closed_phase("probe", PROBE_USERS, PROBE_SECONDS)
            self.measured.probe = await self._run(driver, probe, None)
            first = max(self.measured.probe.answered_per_second * FIRST_SHARE, 0.5)
        steps = self.measured.steps
        hopeless = LatencyStop(percentile=50, milliseconds=HOPELESS_SLOS * slo_ms)
        while not self.interrupted.is_set() and (rate := next_rate(steps, first)) is not None:
            await self._run_counted(driver, self._step(rate, len(steps) + 1), hopeless)
            result = self.measured.verdicts[-1]
            if result is not None:
                steps.append(Step(rate=rate, outcome=result.outcome))

    async def _single_user_misses(self, driver: Driver, slo_ms: float) -> bool:
        """Return whether even a single user waits longer than the SLO: then no rate holds it."""
        single = _closed_phase("one user", 1, SINGLE_USER_SECONDS)
        measurement = await self._run(driver, single, None)
        p50 = measurement.latency.percentile_of_any(50)
        if not p50 > slo_ms:
            return False
        reason = f"one user alone waits {milliseconds(p50)} in the median"
        self.measured.phases.append(measurement)
        self.measured.verdicts.append(Verdict(outcome=Outcome.missed, reason=reason))
        return True

    async def _run_counted(
        self, driver: Driver, phase: Phase, stop: LatencyStop | None
    ) -> Measurement:
        measurement = await self._run(driver, phase, stop)
        slo_ms, is_whole = self.test.slo_ms, not self.interrupted.is_set()
        result = verdict(measurement, slo_ms) if slo_ms is not None and is_whole else None
        self.measured.phases.append(measurement)
        self.measured.verdicts.append(result)
        self.on_phase(measurement, result)
        return measurement

    async def _run(self, driver: Driver, phase: Phase, stop: LatencyStop | None) -> Measurement:
        interval = self.test.options.expected_interval
        measurement = Measurement(
            phase=phase, expected_interval_seconds=None if interval is None else interval / 1000
        )
        halt = asyncio.Event()

        def check() -> None:
            self.on_second(measurement)
            reason = self._reason_to_stop(measurement, stop)
            if reason is not None and measurement.seconds_seen[-1].second < phase.seconds:
                measurement.ended_early = measurement.ended_early or reason
                halt.set()

        async def watch() -> None:
            await self.interrupted.wait()
            measurement.ended_early = "broken off"
            halt.set()

        watching = asyncio.create_task(watch())
        try:
            await driver.run(measurement, halt, check)
        finally:
            watching.cancel()
        return measurement

    def _reason_to_stop(self, measurement: Measurement, stop: LatencyStop | None) -> str | None:
        if stop is not None and measurement.is_above(stop):
            return str(stop)
        earlier = sum(phase.answered for phase in self.measured.phases)
        most = self.test.options.max_requests
        is_counted = measurement.phase.counted
        if most is not None and is_counted and earlier + measurement.answered >= most:
            return f"{most:,} requests were answered"
        return None

    async def _warm_up(self, driver: Driver) -> None:
        """Run a little of the first phase's load, not counted: connections open, caches fill."""
        seconds = self.test.options.warm_up
        if seconds <= 0:
            return
        phase = _closed_phase("warm-up", 4, seconds)
        if self.test.phases and self.test.phases[0].loop is Loop.open:
            first = self.test.phases[0]
            rate = max(first.start, first.spawn / 60)
            phase = Phase(
                name="warm-up", loop=Loop.open, start=rate, seconds=seconds, counted=False
            )
        measurement = await self._run(driver, phase, None)
        if measurement.failed and not measurement.answered:
            reason, _ = measurement.errors.most_common(1)[0]
            raise WrongAnswerError(
                f"{self.test.subject}: all {measurement.failed:,} requests of the warm-up failed "
                f"({reason})."
            )

    def _step(self, rate: float, number: int) -> Phase:
        """Return a search's step, long enough for its p99."""
        needed = samples_needed(SLO_PERCENTILE) * SURPLUS / rate
        longest = min(max(self.test.options.step_seconds, needed), LONGEST_STEP_SECONDS)
        name = f"step {number}: {per_second(rate)}/s"
        return Phase(name=name, loop=Loop.open, start=rate, seconds=float(math.ceil(longest)))


def _closed_phase(name: str, users: int, seconds: float) -> Phase:
    return Phase(name=name, loop=Loop.closed, start=users, seconds=seconds, counted=False)
