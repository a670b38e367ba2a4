"""Runs a load test: warm-up, then its phases or the search for the highest load within the SLO."""

from __future__ import annotations

import asyncio
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, ClassVar

import aiohttp
from rich.markup import escape

from roundhouse.errors import NotReadyError, RoundhouseError, WrongAnswerError
from roundhouse.measure.destination import Destination, Requests, refusal, signer
from roundhouse.measure.driver import ERROR_BYTES, Driver, not_answering, open_driver
from roundhouse.measure.inputs import Inputs
from roundhouse.measure.measurement import Measurement, Outcome, Verdict, percentile, samples_needed
from roundhouse.measure.options import ClientOptions, LoadOptions, Loop, Phase, closed_phase
from roundhouse.measure.slo import Slo, Step, hopeless, machine_limit, next_load, verdict
from roundhouse.text import milliseconds, per_second

LEVEL_USERS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
LEVEL_SECONDS = 2.0
LEVEL_PERCENTILE = 95.0
"""Of a level's answers: what Inference Recommender's latency threshold is of."""
FLAT = 1.05
"""Twice the users that bring less than this much more are the last."""
FIRST_SHARE = 0.9
"""Of the best level's rate: where an open loop begins."""
SURPLUS = 1.15
"""More requests than the percentile needs, as arrivals vary."""
INPUTS = ("description", "sha256", "mean_bytes", "content_type", "rows_per_request")
BUSY_LOADS = 3
"""Loads, the one lower than the other, at which a busy machine ends a search."""
COLORS = {Outcome.held: "green", Outcome.missed: "red"}
NextLoad = Callable[..., float | None]


@dataclass(frozen=True, kw_only=True)
class LoadTest:
    """A load test; without phases it searches for the highest load within the SLO."""

    subject: str
    """An endpoint with its model, or a URL."""
    destination: Destination
    phases: tuple[Phase, ...]
    options: LoadOptions
    """As the command has them."""
    slo: Slo | None
    client: ClientOptions = field(default_factory=ClientOptions)


@dataclass(kw_only=True)
class Runner(ABC):
    """One load test under way; setting `interrupted` ends it, and what was measured stays."""

    test: LoadTest
    on_second: Callable[[Measurement], None] = lambda measurement: None
    on_phase: Callable[[Measurement], None] = lambda measurement: None
    on_note: Callable[[str], None] = lambda text: None
    interrupted: asyncio.Event = field(default_factory=asyncio.Event)
    phases: list[Measurement] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    ended: str | None = None
    """Why a search ended before both ends of its result were known."""
    has_noted: bool = False
    next_load: NextLoad = next_load
    """Of the search; None ends it."""
    step_seconds: float
    longest_step_seconds: float
    is_whole: ClassVar[bool] = False
    """Loads are whole numbers, such as requests at once."""
    hopeless_slos: ClassVar[float]
    """A step of a search whose median is this many SLOs is not run to its end."""

    @property
    @abstractmethod
    def workload(self) -> dict[str, Any]:
        """What is sent, for JSON."""

    @abstractmethod
    async def open(self) -> AbstractAsyncContextManager[Driver]:
        """Return a driver with its HTTP session, once the server has answered a first request."""

    @abstractmethod
    def _warm_up_phase(self, seconds: float) -> Phase:
        """Return a little load that is not counted: connections open, caches fill."""

    @abstractmethod
    async def _first_load(self, driver: Driver) -> float | None:
        """Return where the search begins; None where nothing can hold the SLO."""

    @abstractmethod
    def _step(self, load: float) -> Phase:
        """Return a search's step, long enough for its percentile."""

    @abstractmethod
    def _new_measurement(self, phase: Phase) -> Measurement:
        """Return an empty measurement of a phase."""

    def _counts(self, measurement: Measurement) -> bool:
        """Return whether a step's outcome says something; one that was too short does not."""
        return True

    async def run(self) -> None:
        """Run it all.

        Raises NotReadyError, RoundhouseError or WrongAnswerError when the first request, or the
        whole warm-up, fails; AwsError.
        """
        clock = asyncio.get_running_loop().time
        end = clock() + self.test.options.search_seconds
        async with await self.open() as driver:
            await self.warm_up(driver)
            for phase in self.test.phases:
                if not self.interrupted.is_set():
                    await self._run_counted(driver, phase)
            if not self.test.phases:
                await self._search(driver, lambda: end - clock())

    async def _search(self, driver: Driver, seconds_left: Callable[[], float]) -> None:
        first = await self._first_load(driver)
        while first is not None and not self.interrupted.is_set():
            load = self.next_load(self.steps, first, is_whole=self.is_whole)
            if load is None:
                return
            phase = self._step(load)
            if self.phases and phase.seconds > seconds_left():
                self.ended = f"the {self.test.options.search_seconds:g} s of the search were over"
                return
            measurement = await self._run_counted(driver, phase)
            found = measurement.verdict
            if found is not None and self._counts(measurement):
                self.steps.append(Step(rate=load, outcome=found.outcome))
            self.ended = self.lasting_limit()
            if self.ended is not None:
                return

    def lasting_limit(self) -> str | None:
        """Return that the machine is busy whatever the load, where no load held.

        A lower load then says nothing of the server.
        """
        limits = [machine_limit(phase) for phase in self.phases]
        loads = {step.rate for step in self.steps}
        has_held = any(step.outcome is Outcome.held for step in self.steps)
        if has_held or None in limits or len(loads) < BUSY_LOADS:
            return None
        return f"{limits[-1]} at every load that was tried"

    async def warm_up(self, driver: Driver) -> Measurement | None:
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

    async def _run_counted(self, driver: Driver, phase: Phase) -> Measurement:
        """Run a phase, judge it and keep it."""
        slo, is_search = self.test.slo, not self.test.phases

        def reason_to_stop(measurement: Measurement) -> str | None:
            return hopeless(measurement, slo, self.hopeless_slos) if slo and is_search else None

        measurement = await self.run_phase(driver, phase, reason_to_stop)
        if not self.interrupted.is_set() and slo is not None:
            measurement.verdict = self.judge(measurement, slo)
        self.phases.append(measurement)
        self.on_phase(measurement)
        self.note_limit(measurement)
        return measurement

    def judge(self, measurement: Measurement, slo: Slo) -> Verdict:
        """Return whether a phase held the SLO."""
        return verdict(measurement, slo)

    def note_limit(self, measurement: Measurement) -> None:
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
        self,
        driver: Driver,
        phase: Phase,
        reason_to_stop: Callable[[Measurement], str | None] = lambda measurement: None,
    ) -> Measurement:
        """Run one phase to its end, or until it is interrupted or there is a reason to stop."""
        measurement, halt = self._new_measurement(phase), asyncio.Event()

        def check() -> None:
            self.on_second(measurement)
            reason = reason_to_stop(measurement)
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


def phase_progress(measurement: Measurement) -> str:
    """Return how a phase under way goes."""
    second = measurement.seconds_seen[-1]
    errors = f" · {measurement.failed:,} errors" if measurement.failed else ""
    median = "".join(
        f" · {f'{name} p50'.lstrip()} {milliseconds(value)}"
        for name, value in measurement.medians.items()
    )
    return (
        f"{measurement.phase.name} · {second.second + 1} s · {measurement.answered:,} answers, "
        f"{second.in_flight} under way{median}{errors}"
    )


def phase_line(measurement: Measurement) -> str:
    """Return a phase that has ended as a line with markup."""
    errors = f", {measurement.failed:,} errors" if measurement.failed else ""
    line = escape(f"{measurement.phase.name}: {measurement.numbers}{errors}")
    found = measurement.verdict
    if found is None:
        return line
    reason = "" if found.outcome is Outcome.held else f" ({escape(found.reason)})"
    return f"{line}  [{COLORS.get(found.outcome, 'yellow')}]{found.outcome}[/]{reason}"


@dataclass(frozen=True, kw_only=True)
class EngineTest(LoadTest):
    """A load test of an engine."""

    inputs: Inputs


@dataclass(kw_only=True)
class EngineRunner(Runner):
    """One load test of an engine under way: open loops, after closed ones found where to begin."""

    test: EngineTest
    levels: list[Measurement] = field(default_factory=list)
    """Closed loops of twice the users each, by which the search finds where to begin."""
    level_end: str = ""
    """Why there is no further level."""
    step_seconds: float = 10.0
    longest_step_seconds: float = 120.0
    hopeless_slos: ClassVar[float] = 1.0

    @property
    def workload(self) -> dict[str, Any]:
        """What is sent, for JSON."""
        inputs = self.test.inputs
        return {"bodies": len(inputs.bodies), **{name: getattr(inputs, name) for name in INPUTS}}

    async def open(self) -> AbstractAsyncContextManager[Driver]:
        """Return a driver with its HTTP session."""
        test, to = self.test, self.test.destination
        sign = signer(to)
        await _require_arrays(test, Requests(to, test.inputs.bodies[:1], 0, sign))
        requests = Requests(to, test.inputs.bodies, test.client.seed, sign)
        return open_driver(Driver, to, requests, test.client)

    def _warm_up_phase(self, seconds: float) -> Phase:
        if self.test.phases and self.test.phases[0].loop is Loop.open:
            rate = self.test.phases[0].start
            return Phase(name="warm-up", loop=Loop.open, start=rate, seconds=seconds)
        return closed_phase("warm-up", 4, seconds)

    async def _first_load(self, driver: Driver) -> float | None:
        self.level_end = await self._double_users(driver)
        best = self.best_level
        if best is not None:
            return FIRST_SHARE * best.answered_per_second
        if not self.interrupted.is_set():
            self.levels[0].verdict = Verdict(outcome=Outcome.missed, reason=self.level_end)
            self.phases.append(self.levels[0])
        return None

    async def _double_users(self, driver: Driver) -> str:
        """Run levels until answers are late or no more come; return why there is no other."""
        best, flat = 0.0, 0
        for users in LEVEL_USERS:
            if self.interrupted.is_set():
                return "broken off"
            name = "one user" if users == 1 else f"{users} users"
            level = await self.run_phase(driver, closed_phase(name, users, LEVEL_SECONDS))
            self.levels.append(level)
            self.on_phase(level)
            self.note_limit(level)
            if level.failed:
                return f"{name}: errors, {level.errors.most_common(1)[0][0]}"
            if not self.is_within(level):
                late = milliseconds(percentile(level.latency, LEVEL_PERCENTILE))
                who = "one user alone waits" if users == 1 else f"{users} users wait"
                return f"{who} {late} in p{LEVEL_PERCENTILE:g}"
            flat = 0 if level.answered_per_second > FLAT * best else flat + 1
            best = max(best, level.answered_per_second)
            if flat == 2:
                return f"more than {users // 4} users bring no more answers"
        return f"no more than {LEVEL_USERS[-1]} users are tried"

    @property
    def best_level(self) -> Measurement | None:
        """The level with most answers of those within the SLO; None where there is none."""
        within = [level for level in self.levels if not level.failed and self.is_within(level)]
        return max(within, key=lambda level: level.answered_per_second, default=None)

    def is_within(self, measurement: Measurement) -> bool:
        """Return whether p95 of however few answers is within the SLO."""
        late = percentile(measurement.latency, LEVEL_PERCENTILE)
        assert self.test.slo is not None
        return late is not None and late <= self.test.slo.first_ms

    def _step(self, load: float) -> Phase:
        needed = samples_needed(Measurement.percent) * SURPLUS / load
        seconds = min(max(self.step_seconds, needed), self.longest_step_seconds)
        name = f"step {len(self.steps) + 1}: {per_second(load)}/s"
        return Phase(name=name, loop=Loop.open, start=load, seconds=float(math.ceil(seconds)))

    def _new_measurement(self, phase: Phase) -> Measurement:
        return Measurement(phase=phase)


async def _require_arrays(test: EngineTest, requests: Requests) -> None:
    """Send the first body and read the answer's arrays: what fails every request is raised here."""
    from container.wire import AnswerFault, arrays_of

    data, headers = requests.next()
    async with open_driver(Driver, test.destination, requests, test.client) as driver:
        try:
            async with driver.session.post(driver.url, data=data, headers=headers) as answer:
                body = await answer.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise not_answering(driver.url, error, test.client.timeout) from error
    if answer.status != 200:
        raise first_request_error(test, refusal(answer.status, body[:ERROR_BYTES]))
    try:
        arrays_of(body, answer.headers.get("Content-Type", ""))
    except AnswerFault as error:
        raise WrongAnswerError(f"{test.subject}: {error}") from error


def first_request_error(test: LoadTest, fault: str) -> RoundhouseError:
    """Return the error of a first request: a broken answer, or a refusal with its HTTP status."""
    if not fault.startswith("HTTP"):
        return WrongAnswerError(f"{test.subject}: {fault}")
    message = f"{test.subject}: refused the first request with {fault.rstrip('.')}"
    if test.destination.region is not None:
        deployed = "`roundhouse status` shows what is deployed, `roundhouse deploy` deploys it"
        return RoundhouseError(f"{message}; {deployed}.")
    if fault.startswith("HTTP 5"):
        return NotReadyError(f"{message}; is the server ready (/ping)?")
    return RoundhouseError(f"{message}; give the path, --model and --input that this server takes.")
