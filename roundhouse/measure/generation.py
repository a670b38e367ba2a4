"""The load test of a text generator and its result: closed loops of requests at once."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, ClassVar

import aiohttp

from container.generation_client import StreamBroken
from roundhouse.figures import milliseconds, per_second
from roundhouse.measure.destination import RequestSource, signer
from roundhouse.measure.driver import Driver, not_answering, open_driver
from roundhouse.measure.measurement import (
    Answer,
    Measurement,
    Outcome,
    proven_percentile,
    samples_needed,
)
from roundhouse.measure.options import STREAMS, ClientOptions, Loop, Phase, at_once, closed_phase
from roundhouse.measure.prompts import GenerationRequests, Lengths, WordTokens, word_tokens
from roundhouse.measure.result import Result, outcome_of, verdict_fields
from roundhouse.measure.runner import SURPLUS, LoadTest, Runner, first_request_error
from roundhouse.measure.slo import ITL, TTFT
from roundhouse.measure.streams import (
    EventStream,
    StreamMeasurement,
    StreamReader,
    TokenTimes,
    metrics,
    p95,
)
from roundhouse.table import NOTHING

VERSION = 2
"""Of the document's layout."""
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
    before: Measurement | None = None
    """The warm-up."""
    step_seconds: float = 20.0
    longest_step_seconds: float = 300.0
    is_whole: ClassVar[bool] = True
    hopeless_slos: ClassVar[float] = 2.0

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


@dataclass(frozen=True, kw_only=True)
class GenerationResult(Result):
    """A load test of a text generator with what was measured."""

    test: GenerationTest
    tokens: WordTokens
    version = VERSION
    is_whole = True
    columns = (
        "phase", "requests/s", "goodput/s", "output tokens/s", "TTFT p50", "TTFT p95", "ITL p50",
        "ITL p95", "TPOT p50", "E2E p50", "errors", "SLO",
    )  # fmt: skip
    verb = "Answers"

    @property
    def chief(self) -> StreamMeasurement | None:
        """The knee, else the phase with the most goodput."""
        if self.highest is not None:
            return _stream(self.highest.phase)
        phases = [phase for phase in map(_stream, self.phases) if phase.answers]
        return max(phases, key=lambda phase: phase.goodput or phase.requests_per_second,
                   default=None)  # fmt: skip

    def cells(self, phase: Measurement) -> dict[str, str]:
        """Return a phase's cells by column."""
        phase = _stream(phase)
        ends = [1000 * answer.latency for answer in phase.answers]
        times: dict[str, tuple[Sequence[float], tuple[int, ...]]] = {
            TTFT: (phase.ttfts_ms, (50, 95)),
            ITL: (phase.gaps_ms, (50, 95)),
            "TPOT": (phase.tpots_ms, (50,)),
            "E2E": (ends, (50,)),
        }
        return {
            "phase": phase.phase.name,
            "requests/s": per_second(phase.requests_per_second),
            "goodput/s": per_second(phase.goodput),
            "output tokens/s": per_second(phase.output_tokens_per_second),
            **{
                f"{name} p{percent}": milliseconds(proven_percentile(values, percent))
                for name, (values, percents) in times.items()
                for percent in percents
            },
            "errors": f"{phase.failed:,}",
            "SLO": outcome_of(phase) or phase.ended_early or NOTHING,
        }

    def document(self) -> dict[str, Any]:
        """Return the result for JSON."""
        test, highest, document = self.test, self.highest, super().document()
        knee = None if highest is None else _stream(highest.phase)
        return {
            "slo": None
            if test.slo is None
            else {"ttft_ms": test.slo.limits[TTFT], "itl_ms": test.slo.limits[ITL]},
            "knee": None
            if highest is None or knee is None
            else {
                "concurrency": int(highest.load),
                "lowest_missed": highest.lowest_missed,
                "exact": highest.is_exact,
                "goodput_requests_per_second": knee.goodput,
                "ttft_p95_ms": p95(knee.ttfts_ms),
                "itl_p95_ms": p95(knee.gaps_ms),
                "output_tokens_per_second": knee.output_tokens_per_second,
            },
            "workload": {
                "description": str(test.lengths),
                "lengths": asdict(test.lengths),
                "tokens_of_a_word": asdict(self.tokens),
            },
            **document,
        }

    def _load(self, load: float) -> str:
        return f"{load:.0f} requests at once"

    def _numbers(self, phase: Measurement) -> str:
        stream = _stream(phase)
        return f"goodput {per_second(stream.goodput)}/s, {stream.tokens_text}"

    def _phases_summary(self, chief: Measurement) -> str:
        stream = _stream(chief)
        goodput = "" if stream.goodput is None else f"goodput {per_second(stream.goodput)} of "
        rate = f"{goodput}{per_second(stream.requests_per_second)} requests/s"
        return f"{chief.phase.name}: {rate}, {stream.tokens_text}, {stream.errors_text}."

    def _phase(self, phase: Measurement) -> dict[str, Any]:
        load = phase.phase
        return {
            **verdict_fields(phase),
            "requests_at_once": load.start if load.loop is Loop.closed else None,
            "offered_per_second": load.start if load.loop is Loop.open else None,
            "seconds": phase.seconds,
            "ended_early": phase.ended_early,
            "cpu_share": phase.cpu_share,
            "lag_p95_ms": proven_percentile(phase.lag, 95),
            "metrics": metrics(_stream(phase)),
        }


def _stream(phase: Measurement) -> StreamMeasurement:
    assert isinstance(phase, StreamMeasurement)
    return phase
