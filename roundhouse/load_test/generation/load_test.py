"""Runs a load test of a text generator: warm-up, then its phases or the search for the knee."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
from yarl import URL

from container.generation_client import StreamBroken
from roundhouse.errors import NotReadyError, RoundhouseError, WrongAnswerError
from roundhouse.load_test.destination import RequestSource, refusal
from roundhouse.load_test.driver import (
    ERROR_BYTES,
    Driver,
    client_session,
    failure_reason,
)
from roundhouse.load_test.generation.measurement import (
    GenerationMeasurement,
    GenerationSlo,
)
from roundhouse.load_test.generation.options import GenerationOptions, at_once
from roundhouse.load_test.generation.requests import (
    GenerationRequests,
    WordTokens,
    Workload,
    word_tokens,
)
from roundhouse.load_test.generation.stream import EventStream, StreamReader, TokenTimes
from roundhouse.load_test.generation.target import GenerationTarget
from roundhouse.load_test.generation.verdict import SLO_PERCENTILE, generation_verdict
from roundhouse.load_test.load_test import HOPELESS_SLOS, SURPLUS, run_measurement
from roundhouse.load_test.measurement import Answer, Outcome, percentile, samples_needed
from roundhouse.load_test.options import Phase, closed_phase
from roundhouse.load_test.saturation import Step, next_rate

FIRST_CONCURRENCY = 8
"""Of the search, where no model file says how many requests are answered at once."""
LONGEST_STEP_SECONDS = 300.0
FEW_ANSWERS, NEWEST_ANSWERS = 10, 50
"""A step is stopped early from so many answers on, by the newest of them."""
WARM_UP_USERS = 2


@dataclass(frozen=True, kw_only=True)
class GenerationTest:
    """A load test of a text generator; without phases it searches for the knee."""

    target: GenerationTarget
    workload: Workload
    slo: GenerationSlo | None
    first_concurrency: int
    """Of the search."""
    options: GenerationOptions


@dataclass(frozen=True, kw_only=True)
class StreamDriver(Driver):
    """Sends requests and reads their streamed answers to the end."""

    is_framed: bool

    async def read(self, response: aiohttp.ClientResponse) -> Answer:
        """Return an answer with the times of its tokens; a broken stream is none."""
        if response.status != 200:
            body = await response.read()
            return Answer(fault=refusal(response.status, body[:ERROR_BYTES]))
        reader = StreamReader(unframe=EventStream()) if self.is_framed else StreamReader()
        try:
            async for data in response.content.iter_any():
                reader.read(data, time.monotonic())
            return Answer(content=reader.end())
        except StreamBroken as error:
            return Answer(fault=str(error))


@asynccontextmanager
async def open_stream_driver(
    test: GenerationTest, requests: RequestSource
) -> AsyncIterator[StreamDriver]:
    """Open a driver of streams with its HTTP session."""
    options = test.options.driver_options()
    async with client_session(options) as session:
        yield StreamDriver(
            session=session,
            url=URL(test.target.destination.url, encoded=True),
            requests=requests,
            options=options,
            drain_seconds=options.timeout,
            is_framed=test.target.is_framed,
        )


@dataclass(kw_only=True)
class GenerationRunner:
    """One load test under way; setting `interrupted` ends it, and what was measured stays."""

    test: GenerationTest
    on_second: Callable[[GenerationMeasurement], None] = lambda measurement: None
    on_phase: Callable[[GenerationMeasurement], None] = lambda measurement: None
    interrupted: asyncio.Event = field(default_factory=asyncio.Event)
    phases: list[GenerationMeasurement] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    tokens: WordTokens = field(default_factory=WordTokens)
    """Of the words that prompts of given lengths are made of, by the server's count."""
    before: GenerationMeasurement | None = None
    """The warm-up."""

    async def run(self) -> None:
        """Run it all. Raises WrongAnswerError, NotReadyError, AwsError."""
        self.tokens = await count_tokens(self.test)
        async with open_stream_driver(self.test, requests_of(self.test, self.tokens)) as driver:
            await self._warm_up(driver)
            phases = self.test.options.phases()
            for phase in phases:
                if not self.interrupted.is_set():
                    await self._run_counted(driver, phase)
            if not phases:
                await self._search(driver)

    async def _search(self, driver: StreamDriver) -> None:
        first = float(self.test.first_concurrency)
        while not self.interrupted.is_set():
            count = next_rate(self.steps, first, is_whole=True)
            if count is None:
                return
            phase = closed_phase(at_once(int(count)), int(count), self._step_seconds(int(count)))
            measurement = await self._run_counted(driver, phase)
            verdict = measurement.verdict
            if verdict is None:
                continue
            # Its own answers tell how long it must be: nothing else does before the first one, and
            # the rate of answers may fall.
            is_short = self._step_seconds(int(count)) > phase.seconds
            if verdict.outcome is not Outcome.unproven or not is_short:
                self.steps.append(Step(rate=count, outcome=verdict.outcome))

    def _step_seconds(self, count: int) -> float:
        """Return the length of a step: long enough for p95, by the answers of the last phase."""
        last = next((phase for phase in reversed(self.phases) if phase.answers), self.before)
        seconds = self.test.options.step_seconds
        if last is not None and last.answers:
            rate = last.requests_per_second * min(count / last.phase.start, 1.0)
            seconds = max(seconds, samples_needed(SLO_PERCENTILE) * SURPLUS / rate)
        return float(math.ceil(min(seconds, LONGEST_STEP_SECONDS)))

    async def _warm_up(self, driver: StreamDriver) -> None:
        """Run a few requests, not counted: connections open, caches fill."""
        seconds = self.test.options.warm_up
        if seconds <= 0:
            return
        phase = closed_phase("warm-up", WARM_UP_USERS, seconds)
        self.before = measurement = await self._run_phase(driver, phase)
        if measurement.failed and not measurement.answered:
            reason, _ = measurement.errors.most_common(1)[0]
            raise WrongAnswerError(
                f"{self.test.target.subject}: all {measurement.failed:,} requests of the warm-up "
                f"failed ({reason})."
            )

    async def _run_counted(self, driver: StreamDriver, phase: Phase) -> GenerationMeasurement:
        measurement = await self._run_phase(driver, phase)
        slo = self.test.slo
        if slo is not None and not self.interrupted.is_set():
            measurement.verdict = generation_verdict(measurement, slo)
        self.phases.append(measurement)
        self.on_phase(measurement)
        return measurement

    async def _run_phase(self, driver: StreamDriver, phase: Phase) -> GenerationMeasurement:
        measurement = GenerationMeasurement(phase=phase, slo=self.test.slo)
        is_search = self.test.options.is_search
        await run_measurement(
            driver,
            measurement,
            interrupted=self.interrupted,
            on_second=lambda: self.on_second(measurement),
            reason_to_stop=lambda: hopeless(measurement) if is_search else None,
        )
        return measurement


def hopeless(measurement: GenerationMeasurement) -> str | None:
    """Return why a step of a search need not run to its end: its median misses by far."""
    slo, newest = measurement.slo, measurement.answers[-NEWEST_ANSWERS:]
    if slo is None or len(newest) < FEW_ANSWERS:
        return None
    tpots = [tpot for answer in newest if (tpot := answer.tpot) is not None]
    for title, seconds, limit in (
        ("TTFT", [answer.ttft for answer in newest], HOPELESS_SLOS * slo.ttft_ms),
        ("ITL", tpots, HOPELESS_SLOS * slo.itl_ms),
    ):
        median = percentile(seconds, 50)
        if median is not None and 1000 * median > limit:
            return f"{title} p50 above {limit:g} ms"
    return None


def requests_of(test: GenerationTest, tokens: WordTokens) -> GenerationRequests:
    """Return the requests of a test. Raises AwsError without credentials."""
    return GenerationRequests(
        test.target.destination,
        test.workload,
        schema=test.target.schema,
        model=test.target.model,
        seed=test.options.seed,
        sign=test.target.sign(),
        tokens=tokens,
    )


async def count_tokens(test: GenerationTest) -> WordTokens:
    """Send two prompts and return how the server counts their tokens.

    What fails every request is raised here: NotReadyError when nothing answers or a server is not
    ready, RoundhouseError when the request is refused, WrongAnswerError when the stream is broken.
    """
    requests = requests_of(test, WordTokens())
    counts = []
    async with open_stream_driver(test, requests) as driver:
        lengths = test.workload.lengths
        for words in (0,) if lengths is None else lengths.calibration_words:
            data, headers = requests.of_words(words) if words else requests.next()
            try:
                answer = await driver.post(data, headers)
            except (aiohttp.ClientError, TimeoutError) as error:
                reason = failure_reason(error, test.options.timeout)
                raise NotReadyError(
                    f"{driver.url.origin()}: does not answer ({reason}); is the server, or the "
                    "cloud, up?"
                ) from error
            if answer.fault is not None:
                raise _fault(test, answer.fault)
            assert isinstance(answer.content, TokenTimes)
            counts.append((words, answer.content.prompt_tokens))
    return word_tokens(counts) if len(counts) > 1 else WordTokens()


def _fault(test: GenerationTest, fault: str) -> RoundhouseError:
    if not fault.startswith("HTTP"):
        return WrongAnswerError(f"{test.target.subject}: {fault}")
    message = f"{test.target.subject}: refused the first request with {fault.rstrip('.')}"
    if fault.startswith("HTTP 5"):
        return NotReadyError(f"{message}; is the server ready (/ping)?")
    return RoundhouseError(f"{message}; give --lengths, --input or --model that it takes.")
