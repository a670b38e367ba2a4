"""Runs a load test: warm-up, then its phases or the search for the highest load within the SLO."""

from __future__ import annotations

import asyncio
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import ClassVar, Generic, TypeVar

from rich.markup import escape

from engine_build.card.render import milliseconds, per_second
from roundhouse.errors import WrongAnswerError
from roundhouse.load_test.destination import Destination, Requests, signer
from roundhouse.load_test.driver import D, Driver, open_driver
from roundhouse.load_test.inputs import Inputs
from roundhouse.load_test.measurement import (
    Measurement,
    Outcome,
    Verdict,
    percentiles_text,
    samples_needed,
)
from roundhouse.load_test.options import (
    MINUTE,
    ClientOptions,
    LoadOptions,
    Loop,
    Phase,
    closed_phase,
)
from roundhouse.load_test.saturation import (
    SLO_PERCENTILE,
    Step,
    machine_limit,
    next_rate,
    verdict,
)

LEVEL_USERS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
LEVEL_SECONDS = 2.0
LEVEL_PERCENTILE = 95.0
"""Of a level's answers: what Inference Recommender's latency threshold is of."""
FLAT = 1.05
"""Twice the users that bring less than this much more are the last."""
FIRST_SHARE = 0.9
"""Of the best level's rate: where an open loop begins."""
STEP_SECONDS, LONGEST_STEP_SECONDS = 10.0, 120.0
SURPLUS = 1.15
"""More requests than the percentile needs, as arrivals vary."""
HOPELESS_SLOS = 2.0
"""A step whose median is this many SLOs is not run to its end."""
COLORS = {Outcome.held: "green", Outcome.missed: "red"}
M = TypeVar("M", bound=Measurement)


@dataclass(frozen=True, kw_only=True)
class Load:
    """A load test; without phases it searches for the highest load within the SLO."""

    subject: str
    """An endpoint with its model, or a URL."""
    destination: Destination
    phases: tuple[Phase, ...]
    options: LoadOptions
    """As the command has them."""
    client: ClientOptions = field(default_factory=ClientOptions)


L = TypeVar("L", bound=Load)


@dataclass(kw_only=True)
class LoadRunner(ABC, Generic[L, M, D]):
    """One load test under way; setting `interrupted` ends it, and what was measured stays."""

    test: L
    on_second: Callable[[M], None] = lambda measurement: None
    on_phase: Callable[[M], None] = lambda measurement: None
    on_note: Callable[[str], None] = lambda text: None
    interrupted: asyncio.Event = field(default_factory=asyncio.Event)
    phases: list[M] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    ended: str | None = None
    """Why a search ended before both ends of its result were known."""
    has_noted: bool = False
    is_whole: ClassVar[bool] = False
    """Loads are whole numbers, such as requests at once."""

    @abstractmethod
    async def open(self) -> AbstractAsyncContextManager[D]:
        """Return a driver with its HTTP session."""

    @abstractmethod
    def _warm_up_phase(self, seconds: float) -> Phase:
        """Return a little load that is not counted: connections open, caches fill."""

    @abstractmethod
    async def _first_load(self, driver: D) -> float | None:
        """Return where the search begins; None where nothing can hold the SLO."""

    @abstractmethod
    def _step(self, load: float) -> Phase:
        """Return a search's step, long enough for its percentile."""

    @abstractmethod
    def _new_measurement(self, phase: Phase) -> M:
        """Return an empty measurement of a phase."""

    @abstractmethod
    def _judge(self, measurement: M) -> Verdict | None:
        """Return whether a phase held the SLO; None without one."""

    @abstractmethod
    def _hopeless(self, measurement: M) -> str | None:
        """Return why a step of a search need not run to its end."""

    @abstractmethod
    def progress(self, measurement: M) -> str:
        """Return how a phase under way goes."""

    @abstractmethod
    def _numbers(self, measurement: M) -> str:
        """Return the numbers of a phase that has ended."""

    def _counts(self, measurement: M) -> bool:
        """Return whether a step's outcome says something; one that was too short does not."""
        return True

    async def run(self) -> None:
        """Run it all. Raises WrongAnswerError when the whole warm-up fails, AwsError."""
        clock = asyncio.get_running_loop().time
        end = clock() + self.test.options.search_seconds
        async with await self.open() as driver:
            await self.warm_up(driver)
            for phase in self.test.phases:
                if not self.interrupted.is_set():
                    await self.run_counted(driver, phase)
            if not self.test.phases:
                await self._search(driver, lambda: end - clock())

    async def _search(self, driver: D, seconds_left: Callable[[], float]) -> None:
        first = await self._first_load(driver)
        while first is not None and not self.interrupted.is_set():
            load = next_rate(self.steps, first, is_whole=self.is_whole)
            if load is None:
                return
            phase = self._step(load)
            if self.phases and phase.seconds > seconds_left():
                self.ended = f"the {self.test.options.search_seconds:g} s of the search were over"
                return
            measurement = await self.run_counted(driver, phase)
            found = measurement.verdict
            if found is not None and self._counts(measurement):
                self.steps.append(Step(rate=load, outcome=found.outcome))

    async def warm_up(self, driver: D) -> M | None:
        """Run the warm-up. Raises WrongAnswerError when all of it fails."""
        seconds = self.test.options.warm_up_seconds
        if seconds <= 0:
            return None
        measurement = await self.run_phase(driver, self._warm_up_phase(seconds))
        if measurement.failed and not measurement.answered:
            reason, _ = measurement.errors.most_common(1)[0]
            raise WrongAnswerError(
                f"{self.test.subject}: all {measurement.failed:,} requests of the warm-up failed "
                f"({reason})."
            )
        return measurement

    async def run_counted(self, driver: D, phase: Phase) -> M:
        """Run a phase, judge it and keep it."""
        reason = None if self.test.phases else self._hopeless
        measurement = await self.run_phase(driver, phase, reason)
        if not self.interrupted.is_set():
            measurement.verdict = self._judge(measurement)
        self.phases.append(measurement)
        self.on_phase(measurement)
        self.note_limit(measurement)
        return measurement

    def note_limit(self, measurement: M) -> None:
        """Say once, as soon as it is known, that the tool or its machine is the limit."""
        found, limit = measurement.verdict, machine_limit(measurement)
        if found is not None and found.outcome is Outcome.tool:
            limit = found.reason
        if limit is not None and not self.has_noted:
            self.has_noted = True
            self.on_note(
                f"The limit is the load tool's side: {limit}. What holds is proven, and more may "
                "hold: load from another machine to see the server's own limit."
            )

    async def run_phase(
        self, driver: D, phase: Phase, reason_to_stop: Callable[[M], str | None] | None = None
    ) -> M:
        """Run one phase to its end, or until it is interrupted or there is a reason to stop."""
        measurement, halt = self._new_measurement(phase), asyncio.Event()

        def check() -> None:
            self.on_second(measurement)
            reason = None if reason_to_stop is None else reason_to_stop(measurement)
            if reason is not None and measurement.seconds_seen[-1].second < phase.seconds:
                measurement.ended_early = measurement.ended_early or reason
                halt.set()

        async def watch() -> None:
            await self.interrupted.wait()
            measurement.ended_early = "broken off"
            halt.set()

        watch_task = asyncio.create_task(watch())
        try:
            await driver.run(measurement, halt, check)
        finally:
            watch_task.cancel()
        return measurement

    def line(self, measurement: M) -> str:
        """Return a phase that has ended as a line with markup."""
        errors = f", {measurement.failed:,} errors" if measurement.failed else ""
        line = escape(f"{measurement.phase.name}: {self._numbers(measurement)}{errors}")
        found = measurement.verdict
        if found is None:
            return line
        reason = "" if found.outcome is Outcome.held else f" ({escape(found.reason)})"
        return f"{line}  [{COLORS.get(found.outcome, 'yellow')}]{found.outcome}[/]{reason}"


@dataclass(frozen=True, kw_only=True)
class LoadTest(Load):
    """A load test of an engine."""

    inputs: Inputs
    slo_ms: float | None
    """Of p99."""


@dataclass(kw_only=True)
class Runner(LoadRunner[LoadTest, Measurement, Driver]):
    """One load test of an engine under way."""

    levels: list[Measurement] = field(default_factory=list)
    """Closed loops of twice the users each, by which the search finds where to begin."""

    async def open(self) -> AbstractAsyncContextManager[Driver]:
        """Return a driver with its HTTP session."""
        test, to = self.test, self.test.destination
        requests = Requests(to, test.inputs.bodies, test.client.seed, signer(to))
        return open_driver(Driver, to, requests, test.client)

    def _warm_up_phase(self, seconds: float) -> Phase:
        if self.test.phases and self.test.phases[0].loop is Loop.open:
            first = self.test.phases[0]
            rate = max(first.start, first.spawn / MINUTE)
            return Phase(name="warm-up", loop=Loop.open, start=rate, seconds=seconds)
        return closed_phase("warm-up", 4, seconds)

    async def _first_load(self, driver: Driver) -> float | None:
        reason = await self.double_users(driver)
        best = best_level(self.levels, self._slo_ms)
        if best is not None:
            return FIRST_SHARE * best.answered_per_second
        if not self.interrupted.is_set():
            self.levels[0].verdict = Verdict(outcome=Outcome.missed, reason=reason)
            self.phases.append(self.levels[0])
        return None

    async def double_users(self, driver: Driver) -> str:
        """Run levels until answers are late or no more come; return why there is no other."""
        best, flat = 0.0, 0
        for users in LEVEL_USERS:
            if self.interrupted.is_set():
                return "broken off"
            phase = closed_phase(
                "one user" if users == 1 else f"{users} users", users, LEVEL_SECONDS
            )
            level = await self.run_phase(driver, phase)
            self.levels.append(level)
            self.on_phase(level)
            self.note_limit(level)
            if level.failed:
                return f"{phase.name}: errors, {level.errors.most_common(1)[0][0]}"
            if not is_within(level, self._slo_ms):
                late = milliseconds(level.latency.percentile_of_any(LEVEL_PERCENTILE))
                who = "one user alone waits" if users == 1 else f"{users} users wait"
                return f"{who} {late} in p{LEVEL_PERCENTILE:g}"
            flat = 0 if level.answered_per_second > FLAT * best else flat + 1
            best = max(best, level.answered_per_second)
            if flat == 2:
                return f"more than {users // 4} users bring no more answers"
        return f"no more than {LEVEL_USERS[-1]} users are tried"

    @property
    def _slo_ms(self) -> float:
        assert self.test.slo_ms is not None
        return self.test.slo_ms

    def _step(self, load: float) -> Phase:
        needed = samples_needed(SLO_PERCENTILE) * SURPLUS / load
        seconds = float(math.ceil(min(max(STEP_SECONDS, needed), LONGEST_STEP_SECONDS)))
        name = f"step {len(self.steps) + 1}: {per_second(load)}/s"
        return Phase(name=name, loop=Loop.open, start=load, seconds=seconds)

    def _new_measurement(self, phase: Phase) -> Measurement:
        return Measurement(phase=phase)

    def _judge(self, measurement: Measurement) -> Verdict | None:
        slo_ms = self.test.slo_ms
        return None if slo_ms is None else verdict(measurement, slo_ms)

    def _hopeless(self, measurement: Measurement) -> str | None:
        newest, limit = measurement.newest(50), HOPELESS_SLOS * self._slo_ms
        return f"p50 above {limit:g} ms" if newest is not None and newest > limit else None

    def progress(self, measurement: Measurement) -> str:
        """Return how a phase under way goes."""
        second, phase = measurement.seconds_seen[-1], measurement.phase
        users = f" · {second.users} users"
        load = users if phase.loop is Loop.closed else f" of {per_second(second.offered)}"
        return (
            f"{phase.name} · {second.second + 1} s · {per_second(second.answered)}/s{load} · "
            f"p50 {milliseconds(measurement.newest(50))}"
        )

    def _numbers(self, measurement: Measurement) -> str:
        is_open = measurement.phase.loop is Loop.open
        offered = f" of {per_second(measurement.offered_per_second)}" if is_open else ""
        answered = per_second(measurement.answered_per_second)
        return f"{answered}{offered} answers/s, {percentiles_text(measurement.latency)}"


def best_level(levels: list[Measurement], slo_ms: float) -> Measurement | None:
    """Return the level with most answers of those within the SLO; None where there is none."""
    within = [level for level in levels if not level.failed and is_within(level, slo_ms)]
    return max(within, key=lambda level: level.answered_per_second, default=None)


def is_within(measurement: Measurement, slo_ms: float) -> bool:
    """Return whether p95 of however few answers is within the SLO."""
    late = measurement.latency.percentile_of_any(LEVEL_PERCENTILE)
    return measurement.answered > 0 and late <= slo_ms
