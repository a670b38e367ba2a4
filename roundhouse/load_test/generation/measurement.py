"""One phase of load on a text generator: times of its answers in AIPerf's terms, and its verdict.

Names and fields are those of AIPerf's metrics reference and JSON export schema 1.5
(docs.nvidia.com/aiperf). What `vllm bench serve` calls the same: time_to_first_token is TTFT,
inter_token_latency (the mean of an answer's tokens after the first) is TPOT, inter_chunk_latency
(each gap between two chunks) is ITL, request_latency (to the last token) is E2EL.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, field

from engine_build.card.render import milliseconds
from roundhouse.load_test.generation.stream import TokenTimes
from roundhouse.load_test.measurement import (
    EMPTY_ANSWER,
    Answer,
    Measurement,
    Outcome,
    Verdict,
    is_proven,
    percentile,
)
from roundhouse.load_test.saturation import failure, late_tool, too_few

SLO_PERCENTILE = 95.0
STATISTICS = (1, 5, 10, 25, 50, 75, 90, 95, 99)
"""AIPerf's percentiles."""


@dataclass(frozen=True, kw_only=True)
class GenerationSlo:
    """What clients are promised, in milliseconds, as 95th percentiles."""

    ttft_ms: float
    itl_ms: float

    def __str__(self) -> str:
        return f"TTFT p95 ≤ {self.ttft_ms:g} ms, ITL p95 ≤ {self.itl_ms:g} ms"


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

    def is_good(self, slo: GenerationSlo) -> bool:
        """Return whether this answer holds both limits; of one token, the first alone."""
        tpot = self.tpot
        return self.ttft * 1000 <= slo.ttft_ms and (tpot is None or tpot * 1000 <= slo.itl_ms)


@dataclass(kw_only=True)
class GenerationMeasurement(Measurement):
    """Counts and times of one phase of load on a text generator."""

    slo: GenerationSlo | None = None
    answers: list[AnswerTimes] = field(default_factory=list)
    first_sent: float = math.inf
    last_end: float = -math.inf

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
    def duration(self) -> float:
        """Seconds from the first request that was answered to the last token of all."""
        return max(self.last_end - self.first_sent, 1e-9) if self.answers else 0.0

    @property
    def ttfts_ms(self) -> list[float]:
        """Times to the first token, in milliseconds."""
        return [1000 * answer.ttft for answer in self.answers]

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


def metrics(measurement: GenerationMeasurement) -> dict[str, dict[str, float | int | str]]:
    """Return AIPerf's metrics by their names, each with the fields that its kind has there."""
    answers = measurement.answers
    tpots = [answer.tpot for answer in answers]
    known = [tpot for tpot in tpots if tpot is not None and tpot > 0]
    outputs = [float(answer.tokens.output_tokens) for answer in answers]
    prompts = [float(answer.tokens.prompt_tokens) for answer in answers]
    records = {
        "time_to_first_token": ("ms", measurement.ttfts_ms),
        "inter_token_latency": ("ms", [1000 * tpot for tpot in tpots if tpot is not None]),
        "inter_chunk_latency": ("ms", measurement.gaps_ms),
        "request_latency": ("ms", [1000 * answer.latency for answer in answers]),
        "output_token_throughput_per_user": ("tokens/sec/user", [1 / tpot for tpot in known]),
        "output_sequence_length": ("tokens", outputs),
        "input_sequence_length": ("tokens", prompts),
    }
    totals = sum(outputs), sum(prompts)
    values: dict[str, tuple[str, float | None]] = {
        "request_throughput": ("requests/sec", measurement.requests_per_second),
        "output_token_throughput": ("tokens/sec", measurement.output_tokens_per_second),
        "total_token_throughput": ("tokens/sec", measurement.per_second(sum(totals))),
        "total_osl": ("tokens", totals[0]),
        "total_isl": ("tokens", totals[1]),
        "request_count": ("requests", float(len(answers))),
        "error_request_count": ("requests", float(measurement.failed)),
        "good_request_count": ("requests", measurement.good),
        "goodput": ("requests/sec", measurement.goodput),
        "benchmark_duration": ("sec", measurement.duration),
    }
    return {
        **{name: _record(unit, items) for name, (unit, items) in records.items() if items},
        **{
            name: {"unit": unit, "avg": value}
            for name, (unit, value) in values.items()
            if value is not None
        },
    }


def _record(unit: str, values: list[float]) -> dict[str, float | int | str]:
    ordered = sorted(values)
    points = {f"p{percent}": percentile(ordered, percent) or 0.0 for percent in STATISTICS}
    return {
        "unit": unit,
        "avg": statistics.fmean(ordered),
        "min": ordered[0],
        "max": ordered[-1],
        **points,
        "std": statistics.stdev(ordered) if len(ordered) > 1 else 0.0,
        "count": len(ordered),
        "sum": math.fsum(ordered),
    }


def generation_verdict(measurement: GenerationMeasurement, slo: GenerationSlo) -> Verdict:
    """Return whether p95 of both times is within the SLO, without errors or too few answers."""
    limit, miss = generation_tool_limit(measurement, slo), _miss(measurement, slo)
    if miss is not None and (limit is None or measurement.failed):
        return Verdict(outcome=Outcome.missed, reason=miss)
    if limit is not None:
        return Verdict(outcome=Outcome.tool, reason=limit)
    if not is_proven(len(measurement.answers), SLO_PERCENTILE):
        return too_few(len(measurement.answers), SLO_PERCENTILE)
    ttft, gap = p95(measurement.ttfts_ms), p95(measurement.gaps_ms)
    times = f"TTFT p95 {milliseconds(ttft)}, ITL p95 {milliseconds(gap)}"
    return Verdict(outcome=Outcome.held, reason=f"{times}: within {slo}")


def generation_tool_limit(
    measurement: GenerationMeasurement, slo: GenerationSlo | None
) -> str | None:
    """Return why a phase's numbers are the load tool's own; None when they are the server's."""
    limit = None if slo is None else slo.ttft_ms
    return late_tool(measurement, SLO_PERCENTILE, p95(measurement.ttfts_ms), limit)


def p95(values: list[float]) -> float | None:
    """Return the 95th percentile, of however few values; None of none."""
    return percentile(values, SLO_PERCENTILE)


def _miss(measurement: GenerationMeasurement, slo: GenerationSlo) -> str | None:
    """Return the first thing that the SLO does not allow; of few answers, only what is certain."""
    if (reason := failure(measurement)) is not None:
        return reason
    name = SLO_PERCENTILE if is_proven(len(measurement.answers), SLO_PERCENTILE) else 50.0
    for title, values, limit in (
        ("TTFT", measurement.ttfts_ms, slo.ttft_ms),
        ("ITL", measurement.gaps_ms, slo.itl_ms),
    ):
        value = percentile(values, name)
        if value is not None and value > limit:
            return f"{title} p{name:g} {milliseconds(value)} above {limit:g} ms"
    return None
