"""Runs a load test of a text generator: what is its own beside `LoadRunner`."""

from __future__ import annotations

import math
import time
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

import aiohttp

from container.generation_client import StreamBroken
from engine_build.card.render import milliseconds, per_second
from roundhouse.errors import NotReadyError, RoundhouseError, WrongAnswerError
from roundhouse.load_test.destination import RequestSource, signer
from roundhouse.load_test.driver import Driver, not_answering, open_driver
from roundhouse.load_test.generation.measurement import (
    SLO_PERCENTILE,
    GenerationMeasurement,
    GenerationSlo,
    generation_verdict,
    p95,
)
from roundhouse.load_test.generation.requests import (
    GenerationRequests,
    Schema,
    WordTokens,
    Workload,
    word_tokens,
)
from roundhouse.load_test.generation.stream import EventStream, StreamReader, TokenTimes
from roundhouse.load_test.load_test import HOPELESS_SLOS, SURPLUS, Load, LoadRunner
from roundhouse.load_test.measurement import Answer, Outcome, Verdict, percentile, samples_needed
from roundhouse.load_test.options import (
    STREAMS,
    ClientOptions,
    Phase,
    at_once,
    closed_phase,
)

FIRST_CONCURRENCY = 8
"""Of the search, where no model file says how many requests are answered at once."""
STEP_SECONDS, LONGEST_STEP_SECONDS = 20.0, 300.0
FEW_ANSWERS, NEWEST_ANSWERS = 10, 50
"""A step is stopped early from so many answers on, by the newest of them."""
WARM_UP_USERS = 2


@dataclass(frozen=True, kw_only=True)
class GenerationTest(Load):
    """A load test of a text generator; a search finds the knee."""

    schema: Schema
    model: str | None
    """The name that requests give; None: the server's only one."""
    workload: Workload
    slo: GenerationSlo | None
    first_concurrency: int
    """Of the search."""
    client: ClientOptions = STREAMS


@dataclass(frozen=True, kw_only=True)
class StreamDriver(Driver):
    """Sends requests and reads their streamed answers to the end."""

    is_framed: bool

    async def read(self, response: aiohttp.ClientResponse) -> Answer:
        """Return an answer with the times of its tokens; a broken stream is none."""
        if response.status != 200:
            return await super().read(response)
        reader = StreamReader(unframe=EventStream()) if self.is_framed else StreamReader()
        try:
            async for data in response.content.iter_any():
                reader.read(data, time.monotonic())
            return Answer(content=reader.end())
        except StreamBroken as error:
            return Answer(fault=str(error))


def open_stream_driver(
    test: GenerationTest, requests: RequestSource
) -> AbstractAsyncContextManager[StreamDriver]:
    """Open a driver of streams with its HTTP session."""
    driver = partial(StreamDriver, is_framed=test.destination.is_framed)
    return open_driver(driver, test.destination, requests, test.client, test.client.timeout)


@dataclass(kw_only=True)
class GenerationRunner(LoadRunner[GenerationTest, GenerationMeasurement, StreamDriver]):
    """One load test of a text generator under way."""

    tokens: WordTokens = field(default_factory=WordTokens)
    """Of the words that prompts of given lengths are made of, by the server's count."""
    before: GenerationMeasurement | None = None
    """The warm-up."""
    is_whole: ClassVar[bool] = True

    async def open(self) -> AbstractAsyncContextManager[StreamDriver]:
        """Return a driver, once the server has counted the tokens of words."""
        self.tokens = await count_tokens(self.test)
        return open_stream_driver(self.test, requests_of(self.test, self.tokens))

    def _warm_up_phase(self, seconds: float) -> Phase:
        return closed_phase("warm-up", WARM_UP_USERS, seconds)

    async def warm_up(self, driver: StreamDriver) -> GenerationMeasurement | None:
        """Run the warm-up and keep its times."""
        self.before = await super().warm_up(driver)
        return self.before

    async def _first_load(self, driver: StreamDriver) -> float | None:
        return float(self.test.first_concurrency)

    def _step(self, load: float) -> Phase:
        return closed_phase(at_once(int(load)), int(load), self._step_seconds(int(load)))

    def _counts(self, measurement: GenerationMeasurement) -> bool:
        """Return False for a step that was shorter than its own answers say it must be.

        Nothing else says it before the first one, and the rate of answers may fall.
        """
        found, count = measurement.verdict, int(measurement.phase.start)
        is_short = self._step_seconds(count) > measurement.phase.seconds
        return found is None or found.outcome is not Outcome.unproven or not is_short

    def _step_seconds(self, count: int) -> float:
        """Return the length of a step by the answers of the last phase."""
        last = next((phase for phase in reversed(self.phases) if phase.answers), self.before)
        seconds = STEP_SECONDS
        if last is not None and last.answers:
            rate = last.requests_per_second * min(count / last.phase.start, 1.0)
            seconds = max(seconds, samples_needed(SLO_PERCENTILE) * SURPLUS / rate)
        longest = min(LONGEST_STEP_SECONDS, self.test.options.search_seconds)
        return float(math.ceil(min(seconds, longest)))

    def _new_measurement(self, phase: Phase) -> GenerationMeasurement:
        return GenerationMeasurement(phase=phase, slo=self.test.slo)

    def _judge(self, measurement: GenerationMeasurement) -> Verdict | None:
        slo = self.test.slo
        return None if slo is None else generation_verdict(measurement, slo)

    def _hopeless(self, measurement: GenerationMeasurement) -> str | None:
        return hopeless(measurement)

    def progress(self, measurement: GenerationMeasurement) -> str:
        """Return how a phase under way goes."""
        second = measurement.seconds_seen[-1]
        return (
            f"{measurement.phase.name} · {second.second + 1} s · {measurement.answered:,} answers, "
            f"{second.in_flight} under way"
        )

    def _numbers(self, measurement: GenerationMeasurement) -> str:
        good = measurement.goodput
        return (
            f"{'' if good is None else f'goodput {per_second(good)} of '}"
            f"{per_second(measurement.requests_per_second)} requests/s, "
            f"{per_second(measurement.output_tokens_per_second)} output tokens/s, "
            f"TTFT p95 {milliseconds(p95(measurement.ttfts_ms))}, "
            f"ITL p95 {milliseconds(p95(measurement.gaps_ms))}"
        )


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
        test.destination,
        test.workload,
        schema=test.schema,
        model=test.model,
        seed=test.client.seed,
        sign=signer(test.destination),
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
                raise not_answering(driver.url, error, test.client.timeout) from error
            if answer.fault is not None:
                raise _fault(test, answer.fault)
            assert isinstance(answer.content, TokenTimes)
            counts.append((words, answer.content.prompt_tokens))
    return word_tokens(counts) if len(counts) > 1 else WordTokens()


def _fault(test: GenerationTest, fault: str) -> RoundhouseError:
    if not fault.startswith("HTTP"):
        return WrongAnswerError(f"{test.subject}: {fault}")
    message = f"{test.subject}: refused the first request with {fault.rstrip('.')}"
    if fault.startswith("HTTP 5"):
        return NotReadyError(f"{message}; is the server ready (/ping)?")
    return RoundhouseError(f"{message}; give --input or --model that it takes.")
