"""The load test of a text generator: closed loops of requests at once."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, ClassVar

import aiohttp

from container.generation_client import StreamBroken
from roundhouse.measure.destination import RequestSource, signer
from roundhouse.measure.driver import Driver, not_answering, open_driver
from roundhouse.measure.measurement import Answer, Measurement, Outcome, samples_needed
from roundhouse.measure.options import STREAMS, ClientOptions, Phase, at_once, closed_phase
from roundhouse.measure.prompts import GenerationRequests, Lengths, WordTokens, word_tokens
from roundhouse.measure.runner import SURPLUS, LoadTest, Runner, first_request_error
from roundhouse.measure.streams import EventStream, StreamMeasurement, StreamReader, TokenTimes

FIRST_CONCURRENCY = 8
"""Of the search, where no model file says how many requests are answered at once."""


@dataclass(frozen=True, kw_only=True)
class GenerationTest(LoadTest):
    """A load test of a text generator; a search finds the knee."""

    model: str | None
    """The name that requests give; None: the server's only one."""
    lengths: Lengths
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


@dataclass(kw_only=True)
class GenerationRunner(Runner):
    """One load test of a text generator under way: closed loops of requests at once."""

    test: GenerationTest
    tokens: WordTokens = field(default_factory=WordTokens)
    """Of the words that prompts of given lengths are made of, by the server's count."""
    words_seed: int = field(default_factory=lambda: secrets.randbits(32))
    """No two runs send the same prompts."""
    before: Measurement | None = None
    """The warm-up."""
    step_seconds: float = 20.0
    longest_step_seconds: float = 300.0
    is_whole: ClassVar[bool] = True
    hopeless_slos: ClassVar[float] = 2.0

    @property
    def workload(self) -> dict[str, Any]:
        """What is sent, for JSON."""
        lengths = self.test.lengths
        return {
            "description": str(lengths),
            "lengths": asdict(lengths),
            "tokens_of_a_word": asdict(self.tokens),
            "words_seed": self.words_seed,
        }

    async def open(self) -> AbstractAsyncContextManager[Driver]:
        """Return a driver, once the server has counted the tokens of words."""
        self.tokens = await self._count_tokens()
        return self._open_driver(self._requests(self.tokens))

    def _open_driver(self, requests: RequestSource) -> AbstractAsyncContextManager[StreamDriver]:
        client, to = self.test.client, self.test.destination
        driver = partial(StreamDriver, is_framed=to.is_framed)
        return open_driver(driver, to, requests, client, client.timeout)

    def _requests(self, tokens: WordTokens) -> GenerationRequests:
        test = self.test
        return GenerationRequests(
            test.destination,
            test.lengths,
            model=test.model,
            seed=test.client.seed,
            words_seed=self.words_seed,
            sign=signer(test.destination),
            tokens=tokens,
        )

    async def _count_tokens(self) -> WordTokens:
        """Send two prompts and return how the server counts their tokens."""
        test, counts = self.test, []
        requests = self._requests(WordTokens())
        async with self._open_driver(requests) as driver:
            for words in test.lengths.calibration_words:
                try:
                    answer = await driver.post(*requests.of_words(words, 2))
                except (aiohttp.ClientError, TimeoutError) as error:
                    raise not_answering(driver.url, error, test.client.timeout) from error
                if answer.fault is not None:
                    raise first_request_error(test, answer.fault)
                assert isinstance(answer.content, TokenTimes)
                counts.append((words, answer.content.prompt_tokens))
        return word_tokens(counts)

    def _warm_up_phase(self, seconds: float) -> Phase:
        return closed_phase("warm-up", 2, seconds)

    async def warm_up(self, driver: Driver) -> Measurement | None:
        """Run the warm-up and keep its times."""
        self.before = await super().warm_up(driver)
        return self.before

    async def _first_load(self, driver: Driver) -> float | None:
        return float(self.test.first_concurrency)

    def _step(self, load: float) -> Phase:
        return closed_phase(at_once(int(load)), int(load), self._step_seconds(int(load)))

    def _counts(self, measurement: Measurement) -> bool:
        """Return False for a step that was shorter than its own answers say it must be.

        Nothing else says it before the first one, and the rate of answers may fall.
        """
        found, count = measurement.verdict, int(measurement.phase.start)
        is_short = self._step_seconds(count) > measurement.phase.seconds
        return found is None or found.outcome is not Outcome.unproven or not is_short

    def _step_seconds(self, count: int) -> float:
        """Return the length of a step by the answers of the last phase."""
        before: Sequence[Measurement | None] = (*reversed(self.phases), self.before)
        seconds = self.step_seconds
        for phase in before:
            if isinstance(phase, StreamMeasurement) and phase.answers:
                rate = phase.requests_per_second * min(count / phase.phase.start, 1.0)
                seconds = max(seconds, samples_needed(phase.percent) * SURPLUS / rate)
                break
        longest = min(self.longest_step_seconds, self.test.options.search_seconds)
        return float(math.ceil(min(seconds, longest)))

    def _new_measurement(self, phase: Phase) -> Measurement:
        return StreamMeasurement(phase=phase, slo=self.test.slo)
