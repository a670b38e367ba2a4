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
from roundhouse.load_test.measurement import Measurement, Outcome, Verdict, samples_needed
from roundhouse.load_test.options import (
    MINUTE,
    LatencyStop,
    LoadOptions,
    Loop,
    Phase,
    closed_phase,
)
from roundhouse.load_test.saturation import SLO_PERCENTILE, Step, next_rate, verdict

PROBE_USERS = 32
PROBE_SECONDS = 4.0
SINGLE_USER_SECONDS = 1.0
FIRST_SHARE = 0.3
"""Of the throughput that the probe reached: where the search begins."""
LONGEST_STEP_SECONDS = 120.0
SURPLUS = 1.15
"""More requests than the percentile needs, as arrivals vary."""
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
class Runner:
    """One load test under way; setting `interrupted` ends it, and what was measured stays."""

    test: LoadTest
    on_second: Callable[[Measurement], None] = lambda measurement: None
    on_phase: Callable[[Measurement], None] = lambda measurement: None
    interrupted: asyncio.Event = field(default_factory=asyncio.Event)
    phases: list[Measurement] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    probe_per_second: float | None = None
    stopped: str | None = None
    """The stopping condition that was met."""

    async def run(self) -> None:
        """Run it all. Raises WrongAnswerError when the whole warm-up fails, AwsError."""
        test = self.test
        sign = signer(test.destination)
        requests = Requests(test.destination, test.inputs.bodies, test.options.seed, sign)
        async with open_driver(test.destination, requests, test.options) as driver:
            await self.warm_up(driver)
            if test.phases:
                await self._run_phases(driver)
            else:
                await self._search(driver)

    async def _run_phases(self, driver: Driver) -> None:
        for phase in self.test.phases:
            if self.interrupted.is_set() or self.stopped is not None:
                return
            measurement = await self._run_counted(driver, phase, self._reason_to_stop)
            if not self.interrupted.is_set():
                self.stopped = measurement.ended_early

    def _reason_to_stop(self, measurement: Measurement) -> str | None:
        stop, most = self.test.stop, self.test.options.max_requests
        if stop is not None and measurement.is_above(stop):
            return str(stop)
        answered = measurement.answered + sum(phase.answered for phase in self.phases)
        return None if most is None or answered < most else f"{most:,} requests were answered"

    async def _search(self, driver: Driver) -> None:
        first, slo_ms = self.test.options.first_rate, self.test.slo_ms
        assert slo_ms is not None
        if await self._single_user_misses(driver, slo_ms):
            return
        if first is None:
            probe = await self.run_phase(driver, closed_phase("probe", PROBE_USERS, PROBE_SECONDS))
            self.probe_per_second = probe.answered_per_second
            first = max(self.probe_per_second * FIRST_SHARE, 0.5)
        hopeless = LatencyStop(percentile=50, milliseconds=HOPELESS_SLOS * slo_ms)
        while not self.interrupted.is_set() and (rate := next_rate(self.steps, first)) is not None:
            measurement = await self._run_counted(
                driver, self._step(rate), lambda m: str(hopeless) if m.is_above(hopeless) else None
            )
            if measurement.verdict is not None:
                self.steps.append(Step(rate=rate, outcome=measurement.verdict.outcome))

    async def _single_user_misses(self, driver: Driver, slo_ms: float) -> bool:
        """Return whether even a single user waits longer than the SLO: then no rate holds it."""
        measurement = await self.run_phase(driver, closed_phase("one user", 1, SINGLE_USER_SECONDS))
        p50 = measurement.latency.percentile_of_any(50)
        if not p50 > slo_ms:
            return False
        reason = f"one user alone waits {milliseconds(p50)} in the median"
        measurement.verdict = Verdict(outcome=Outcome.missed, reason=reason)
        self.phases.append(measurement)
        return True

    def _step(self, rate: float) -> Phase:
        """Return a search's step, long enough for its p99."""
        needed = samples_needed(SLO_PERCENTILE) * SURPLUS / rate
        seconds = min(max(self.test.options.step_seconds, needed), LONGEST_STEP_SECONDS)
        name = f"step {len(self.steps) + 1}: {per_second(rate)}/s"
        return Phase(name=name, loop=Loop.open, start=rate, seconds=float(math.ceil(seconds)))

    async def warm_up(self, driver: Driver) -> None:
        """Run a little of the first phase's load, not counted: connections open, caches fill."""
        seconds = self.test.options.warm_up
        if seconds <= 0:
            return
        phase = closed_phase("warm-up", 4, seconds)
        if self.test.phases and self.test.phases[0].loop is Loop.open:
            first = self.test.phases[0]
            rate = max(first.start, first.spawn / MINUTE)
            phase = Phase(name="warm-up", loop=Loop.open, start=rate, seconds=seconds)
        measurement = await self.run_phase(driver, phase)
        if measurement.failed and not measurement.answered:
            reason, _ = measurement.errors.most_common(1)[0]
            raise WrongAnswerError(
                f"{self.test.subject}: all {measurement.failed:,} requests of the warm-up failed "
                f"({reason})."
            )

    async def _run_counted(
        self, driver: Driver, phase: Phase, reason_to_stop: Callable[[Measurement], str | None]
    ) -> Measurement:
        measurement = await self.run_phase(driver, phase, reason_to_stop)
        if self.test.slo_ms is not None and not self.interrupted.is_set():
            measurement.verdict = verdict(measurement, self.test.slo_ms)
        self.phases.append(measurement)
        self.on_phase(measurement)
        return measurement

    async def run_phase(
        self,
        driver: Driver,
        phase: Phase,
        reason_to_stop: Callable[[Measurement], str | None] = lambda measurement: None,
    ) -> Measurement:
        """Run one phase to its end, or until there is a reason to stop."""
        interval = self.test.options.expected_interval
        measurement = Measurement(
            phase=phase, expected_interval_seconds=None if interval is None else interval / 1000
        )
        await run_measurement(
            driver,
            measurement,
            interrupted=self.interrupted,
            on_second=lambda: self.on_second(measurement),
            reason_to_stop=lambda: reason_to_stop(measurement),
        )
        return measurement


async def run_measurement(
    driver: Driver,
    measurement: Measurement,
    *,
    interrupted: asyncio.Event,
    on_second: Callable[[], None],
    reason_to_stop: Callable[[], str | None],
) -> None:
    """Run a measurement's phase to its end, or until it is interrupted or a reason stops it."""
    halt = asyncio.Event()

    def check() -> None:
        on_second()
        reason = reason_to_stop()
        if reason is not None and measurement.seconds_seen[-1].second < measurement.phase.seconds:
            measurement.ended_early = measurement.ended_early or reason
            halt.set()

    async def watch() -> None:
        await interrupted.wait()
        measurement.ended_early = "broken off"
        halt.set()

    watch_task = asyncio.create_task(watch())
    try:
        await driver.run(measurement, halt, check)
    finally:
        watch_task.cancel()
