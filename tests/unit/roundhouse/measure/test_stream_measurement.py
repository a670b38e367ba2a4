"""Metrics of answers with known times, in AIPerf's and in vLLM's definitions; verdicts on them."""

from __future__ import annotations

from array import array

import pytest

from roundhouse.measure.measurement import Answer, Outcome
from roundhouse.measure.options import closed_phase
from roundhouse.measure.slo import hopeless, stream_slo, verdict
from roundhouse.measure.streams import StreamMeasurement, TokenTimes, metrics

SLO = stream_slo(ttft_ms=300, itl_ms=60)


def measurement(*answers, slo=SLO, errors=0) -> StreamMeasurement:
    """Return a phase with answers of (due, moments of chunks, prompt tokens, output tokens)."""
    result = StreamMeasurement(phase=closed_phase("2 at once", 2, 10.0), slo=slo)
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
    slo = stream_slo(ttft_ms=ttft_ms, itl_ms=itl_ms)
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


def answers(count, *, ttft=0.1, gap=0.01, late=0):
    """Return answers of three tokens, `late` of them with four times the TTFT."""
    pairs = [(number, ttft * (4 if number < late else 1)) for number in range(count)]
    return [
        (float(due), (due + first, due + first + gap, due + first + 2 * gap), 10, 3)
        for due, first in pairs
    ]


def test_both_percentiles_within_the_slo_hold():
    found = verdict(measurement(*answers(200, late=9)), SLO)
    assert found.outcome is Outcome.held
    assert "TTFT p95" in found.reason and "ITL p95" in found.reason


@pytest.mark.parametrize(
    ("phase", "reason"),
    [
        (measurement(*answers(200, late=20)), "TTFT p95 400 ms above 300 ms"),
        (measurement(*answers(200, gap=0.07)), "ITL p95 70.0 ms above 60 ms"),
        (measurement(*answers(30, ttft=0.5)), "TTFT p50 500 ms above 300 ms"),
        (measurement(*answers(200), errors=1), "1 error: HTTP 503"),
    ],
    ids=["first token", "between tokens", "few answers, all late", "errors"],
)
def test_a_phase_misses(phase, reason):
    found = verdict(phase, SLO)
    assert (found.outcome, found.reason) == (Outcome.missed, reason)


def test_refuses_a_verdict_on_too_few_answers():
    found = verdict(measurement(*answers(150, late=20)), SLO)
    assert (found.outcome, found.reason) == (Outcome.unproven, "150 answers; p95 needs 200")


def test_the_tools_own_load_is_not_the_servers_miss():
    phase = measurement(*answers(200, late=20))
    phase.seconds_seen[0].cpu_share = 0.99
    assert verdict(phase, SLO).outcome is Outcome.tool


def test_a_step_whose_median_misses_by_far_is_ended():
    assert hopeless(measurement(*answers(20, ttft=0.7)), SLO, 2) == "TTFT p50 above 600 ms"
    assert hopeless(measurement(*answers(20, gap=0.13)), SLO, 2) == "ITL p50 above 120 ms"
    assert hopeless(measurement(*answers(20, ttft=0.5)), SLO, 2) is None
    assert hopeless(measurement(*answers(3, ttft=9)), SLO, 2) is None
