"""Metrics of answers with known times, in AIPerf's and in vLLM's definitions."""

from __future__ import annotations

from array import array

import pytest

from roundhouse.load_test.generation.measurement import (
    AnswerTimes,
    GenerationMeasurement,
    GenerationSlo,
    metrics,
)
from roundhouse.load_test.generation.stream import TokenTimes
from roundhouse.load_test.measurement import Answer
from roundhouse.load_test.options import closed_phase

SLO = GenerationSlo(ttft_ms=300, itl_ms=60)


def measurement(*answers, slo=SLO, errors=0) -> GenerationMeasurement:
    """Return a phase with answers of (due, moments of chunks, prompt tokens, output tokens)."""
    result = GenerationMeasurement(phase=closed_phase("2 at once", 2, 10.0), slo=slo)
    result.start_second(0)
    for due, chunks, prompt, output in answers:
        times = TokenTimes(array("d", chunks), prompt, output)
        result.record_answer(due, due, chunks[-1], Answer(content=times))
    for _ in range(errors):
        result.record_error("HTTP 503")
    return result


FIRST = (10.0, (10.2, 10.25, 10.3), 100, 3)
SECOND = (10.1, (10.5, 10.6), 50, 4)
"""Four tokens in two chunks."""


def test_times_of_one_answer():
    times = AnswerTimes(10.1, TokenTimes(array("d", SECOND[1]), 50, 4))
    assert times.ttft == pytest.approx(0.4)
    assert times.latency == pytest.approx(0.5)
    assert times.tpot == pytest.approx(0.1 / 3)


def test_metrics_have_aiperfs_names_units_and_fields():
    found = metrics(measurement(FIRST, SECOND, errors=2))
    assert found["time_to_first_token"] == {
        "unit": "ms", "avg": pytest.approx(300), "min": pytest.approx(200),
        "max": pytest.approx(400), "p1": pytest.approx(202), "p5": pytest.approx(210),
        "p10": pytest.approx(220), "p25": pytest.approx(250), "p50": pytest.approx(300),
        "p75": pytest.approx(350), "p90": pytest.approx(380), "p95": pytest.approx(390),
        "p99": pytest.approx(398), "std": pytest.approx(141.42, abs=0.01), "count": 2,
        "sum": pytest.approx(600),
    }  # fmt: skip
    assert found["inter_token_latency"]["avg"] == pytest.approx((50 + 100 / 3) / 2)
    assert found["inter_chunk_latency"]["count"] == 3
    assert found["inter_chunk_latency"]["max"] == pytest.approx(100)
    assert found["request_latency"]["avg"] == pytest.approx(400)
    assert found["output_sequence_length"]["sum"] == 7
    assert found["input_sequence_length"]["avg"] == 75
    for name, unit, value in (
        ("benchmark_duration", "sec", 0.6),
        ("request_throughput", "requests/sec", 2 / 0.6),
        ("output_token_throughput", "tokens/sec", 7 / 0.6),
        ("total_token_throughput", "tokens/sec", 157 / 0.6),
        ("request_count", "requests", 2),
        ("error_request_count", "requests", 2),
        ("good_request_count", "requests", 1),
        ("goodput", "requests/sec", 1 / 0.6),
    ):
        assert found[name] == {"unit": unit, "avg": pytest.approx(value)}


@pytest.mark.parametrize(
    ("ttft_ms", "itl_ms", "good"), [(500, 60, 2), (300, 60, 1), (500, 40, 1), (100, 1, 0)]
)
def test_goodput_needs_both_limits_of_each_answer(ttft_ms, itl_ms, good):
    slo = GenerationSlo(ttft_ms=ttft_ms, itl_ms=itl_ms)
    assert measurement(FIRST, SECOND, slo=slo).good == good


def test_answer_of_one_token_has_no_time_between_tokens():
    phase = measurement((0.0, (0.1,), 5, 1))
    found = metrics(phase)
    assert phase.good == 1
    assert {"inter_token_latency", "inter_chunk_latency"} & found.keys() == set()


def test_without_an_slo_there_is_no_goodput():
    found = metrics(measurement(FIRST, slo=None))
    assert {"goodput", "good_request_count"} & found.keys() == set()


def test_of_no_answer_nothing_is_known():
    found = metrics(measurement(errors=3))
    assert found["request_count"]["avg"] == 0 and found["error_request_count"]["avg"] == 3
    assert "time_to_first_token" not in found
