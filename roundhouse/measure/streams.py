"""Streamed answers: when their tokens came, and one phase of them in terms of `vllm bench serve`.

The client of streams says whether an answer is whole. TTFT is the time to the first token, TPOT the
mean of an answer's tokens after the first, ITL each gap between two chunks, E2EL the time to the
last token.
"""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar

from container.generation_client import Event, EventReader, StreamBroken, Usage, payload_parts
from roundhouse.measure.measurement import (
    EMPTY_ANSWER,
    Answer,
    Measurement,
    percentile,
    proven_percentile,
)
from roundhouse.measure.slo import ITL, TTFT, Slo
from roundhouse.text import milliseconds, per_second

Unframe = Callable[[bytes], bytes]
"""Returns the bytes of the container's answer in bytes that arrived."""


@dataclass(frozen=True, slots=True)
class TokenTimes:
    """One answer; moments on the clock of the load tool, in seconds."""

    chunks: array[float]
    """Moments at which chunks with tokens arrived, in order; at least one."""
    prompt_tokens: int
    output_tokens: int

    @property
    def gaps(self) -> Iterator[float]:
        """Seconds between two chunks."""
        return (later - earlier for earlier, later in pairwise(self.chunks))


class EventStream:
    """AWS's event stream around an answer of InvokeEndpointWithResponseStream."""

    def __init__(self) -> None:
        from botocore.eventstream import EventStreamBuffer

        self._buffer = EventStreamBuffer()

    def __call__(self, data: bytes, /) -> bytes:
        """Return the payloads that are whole. Raises StreamBroken for an exception event."""
        from botocore.eventstream import ParserError

        try:
            self._buffer.add_data(data)
            return b"".join(payload_parts(map(_member, self._buffer)))
        except ParserError as error:
            raise StreamBroken(f"The event stream is damaged ({error}).") from error


def _member(event: Any) -> Mapping[str, Any]:
    """Return an event as botocore gives it to callers of SageMaker's API."""
    headers: Mapping[str, str] = event.headers
    if headers.get(":message-type") == "event":
        return {headers[":event-type"]: {"Bytes": event.payload}}
    name = headers.get(":exception-type") or headers.get(":error-code") or "error"
    try:
        fault = json.loads(event.payload)
    except ValueError:
        fault = {"Message": headers.get(":error-message", "")}
    return {name: fault}


@dataclass(kw_only=True)
class StreamReader:
    """Notes when chunks of an answer in OpenAI's schema arrive.

    A chunk has tokens when it has a choice, whatever its text: a token may be part of a character.
    The chunk that only names the role of a chat's answer has none.
    """

    unframe: Unframe = bytes
    _events: EventReader = field(default_factory=EventReader)
    _chunks: array[float] = field(default_factory=lambda: array("d"))
    _usage: Usage | None = None
    _last: float = 0.0

    def read(self, data: bytes, now: float) -> None:
        """Read bytes that arrived now. Raises StreamBroken."""
        self._last = now
        self._note(self._events.read(self.unframe(data)))

    def end(self) -> TokenTimes:
        """Return the answer's times. Raises StreamBroken for one that is not whole."""
        self._note(self._events.end())
        if not self._chunks:
            raise StreamBroken("The stream brought no token.")
        if self._usage is None:
            raise StreamBroken("The stream has no usage (stream_options.include_usage).")
        return TokenTimes(self._chunks, self._usage.prompt_tokens, self._usage.completion_tokens)

    def _note(self, events: Iterable[Event]) -> None:
        for event in events:
            self._usage = event.usage or self._usage
            if event.choices and not _is_role(event.choices[0]):
                self._chunks.append(self._last)


def _is_role(choice: Mapping[str, Any]) -> bool:
    delta = choice.get("delta")
    if not isinstance(delta, Mapping) or choice.get("finish_reason") is not None:
        return False
    return "role" in delta and not any(value for name, value in delta.items() if name != "role")


@dataclass(frozen=True, slots=True)
class AnswerTimes:
    """One whole answer: seconds from the moment its request was due, on the tool's clock."""

    due: float
    tokens: TokenTimes

    @property
    def ttft(self) -> float:
        """Seconds to the first token."""
        return self.tokens.chunks[0] - self.due

    @property
    def latency(self) -> float:
        """Seconds to the last token."""
        return self.tokens.chunks[-1] - self.due

    @property
    def tpot(self) -> float | None:
        """Mean seconds of a token after the first; None for an answer of one token."""
        count = self.tokens.output_tokens - 1
        return (self.latency - self.ttft) / count if count > 0 else None

    def is_good(self, slo: Slo) -> bool:
        """Return whether this answer holds both limits; of one token, the first alone."""
        tpot = self.tpot
        return self.ttft * 1000 <= slo.limits[TTFT] and (
            tpot is None or tpot * 1000 <= slo.limits[ITL]
        )


@dataclass(kw_only=True)
class StreamMeasurement(Measurement):
    """Counts and times of one phase of load on a text generator."""

    slo: Slo | None = None
    answers: list[AnswerTimes] = field(default_factory=list)
    first_sent: float = math.inf
    last_end: float = -math.inf
    percent: ClassVar[float] = 95.0

    def record_answer(
        self, due: float, sent: float, now: float, answer: Answer = EMPTY_ANSWER
    ) -> None:
        """Count a whole answer and keep its times."""
        super().record_answer(due, sent, now, answer)
        assert isinstance(answer.content, TokenTimes)
        times = AnswerTimes(due, answer.content)
        self.answers.append(times)
        self.first_sent = min(self.first_sent, sent)
        self.last_end = max(self.last_end, times.due + times.latency)

    @property
    def times(self) -> Mapping[str, Sequence[float]]:
        """What an SLO limits, in milliseconds."""
        return {TTFT: self.ttfts_ms, ITL: self.gaps_ms}

    @property
    def medians(self) -> Mapping[str, float | None]:
        """The medians of the answers' times to the first and of a later token."""
        times = {TTFT: self.ttfts_ms, ITL: self.tpots_ms}
        return {name: proven_percentile(values, 50) for name, values in times.items()}

    def has_slow_server(self, limit_ms: float) -> bool:
        """Return False: the time to a first token counts from the moment it was due alone."""
        return False

    @property
    def recorded_times(self) -> Mapping[str, Sequence[float]]:
        """Every time that was taken, in milliseconds, in terms of `vllm bench serve`."""
        ends = [1000 * answer.latency for answer in self.answers]
        return {
            "ttft": self.ttfts_ms,
            "tpot": self.tpots_ms,
            "itl": self.gaps_ms,
            "e2el": ends,
            "lag": self.lag,
        }

    def cells(self) -> dict[str, str]:
        """Return rates and times of a row of the table, by column."""
        shown = (("ttft", 50), ("ttft", 95), ("itl", 50), ("itl", 95), ("tpot", 50), ("e2el", 50))
        times = self.recorded_times
        return {
            "requests/s": per_second(self.requests_per_second),
            "goodput/s": per_second(self.goodput),
            "output tokens/s": per_second(self.output_tokens_per_second),
            **{
                f"{name.upper()} p{percent}": milliseconds(proven_percentile(times[name], percent))
                for name, percent in shown
            },
        }

    def document(self) -> dict[str, Any]:
        """Return the phase for JSON, with tokens and rates over the whole duration."""
        tokens = sum(answer.tokens.output_tokens for answer in self.answers)
        prompts = sum(answer.tokens.prompt_tokens for answer in self.answers)
        return {
            **super().document(),
            "good_answers": self.good,
            "output_tokens": tokens,
            "prompt_tokens": prompts,
            "duration_seconds": self.duration,
            "requests_per_second": self.requests_per_second,
            "goodput_requests_per_second": self.goodput,
            "output_tokens_per_second": self.output_tokens_per_second,
            "total_tokens_per_second": self.per_second(tokens + prompts),
        }

    @property
    def pile_up(self) -> str | None:
        """None: answers take seconds, and those of a phase's end are under way."""
        return None

    @property
    def numbers(self) -> str:
        """What a line says of a phase that has ended."""
        good = self.goodput
        rate = f"{per_second(self.requests_per_second)} requests/s"
        return (
            f"{'' if good is None else f'goodput {per_second(good)} of '}{rate}, {self.tokens_text}"
        )

    @property
    def tokens_text(self) -> str:
        """Tokens a second of all answers, and the 95th percentiles of their times."""
        times = (f"{name} p95 {milliseconds(p95(values))}" for name, values in self.times.items())
        rate = f"{per_second(self.output_tokens_per_second)} output tokens/s"
        return ", ".join((rate, *times))

    @property
    def duration(self) -> float:
        """Seconds from the first request that was answered to the last token of all."""
        return max(self.last_end - self.first_sent, 1e-9) if self.answers else 0.0

    @property
    def ttfts_ms(self) -> list[float]:
        """Times to the first token, in milliseconds."""
        return [1000 * answer.ttft for answer in self.answers]

    @property
    def tpots_ms(self) -> list[float]:
        """Mean times of a token after the first of each answer, in milliseconds."""
        return [1000 * tpot for answer in self.answers if (tpot := answer.tpot) is not None]

    @property
    def gaps_ms(self) -> list[float]:
        """Times between two chunks of all answers, in milliseconds."""
        return [1000 * gap for answer in self.answers for gap in answer.tokens.gaps]

    @property
    def good(self) -> int | None:
        """Answers that hold the SLO; None without one."""
        if self.slo is None:
            return None
        return sum(answer.is_good(self.slo) for answer in self.answers)

    @property
    def goodput(self) -> float | None:
        """Answers a second that hold the SLO; None without one."""
        good = self.good
        return None if good is None else self.per_second(good)

    @property
    def output_tokens_per_second(self) -> float:
        """Tokens of all answers, over the whole duration."""
        return self.per_second(sum(answer.tokens.output_tokens for answer in self.answers))

    @property
    def requests_per_second(self) -> float:
        """Whole answers, over the whole duration."""
        return self.per_second(len(self.answers))

    def per_second(self, count: float) -> float:
        """Return a count over the whole duration."""
        return count / self.duration if self.duration else 0.0


def p95(values: Sequence[float]) -> float | None:
    """Return the 95th percentile, of however few values; None of none."""
    return percentile(values, StreamMeasurement.percent)
