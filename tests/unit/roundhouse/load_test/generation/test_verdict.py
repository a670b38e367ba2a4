"""Verdicts on phases of load on a text generator."""

from __future__ import annotations

import pytest

from roundhouse.load_test.generation.load_test import hopeless
from roundhouse.load_test.generation.verdict import generation_verdict
from roundhouse.load_test.measurement import Outcome
from tests.unit.roundhouse.load_test.generation.test_measurement import SLO, measurement


def answers(count, *, ttft=0.1, gap=0.01, late=0):
    """Return answers of three tokens, `late` of them with four times the TTFT."""
    pairs = [(number, ttft * (4 if number < late else 1)) for number in range(count)]
    return [
        (float(due), (due + first, due + first + gap, due + first + 2 * gap), 10, 3)
        for due, first in pairs
    ]


def test_both_percentiles_within_the_slo_hold():
    verdict = generation_verdict(measurement(*answers(200, late=9)), SLO)
    assert verdict.outcome is Outcome.held
    assert "TTFT p95" in verdict.reason and "ITL p95" in verdict.reason


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
    verdict = generation_verdict(phase, SLO)
    assert (verdict.outcome, verdict.reason) == (Outcome.missed, reason)


def test_refuses_a_verdict_on_too_few_answers():
    verdict = generation_verdict(measurement(*answers(150, late=20)), SLO)
    assert (verdict.outcome, verdict.reason) == (Outcome.unproven, "150 answers; p95 needs 200")


def test_the_tools_own_load_is_not_the_servers_miss():
    phase = measurement(*answers(200, late=20))
    phase.seconds_seen[0].cpu_share = 0.99
    assert generation_verdict(phase, SLO).outcome is Outcome.tool


def test_a_step_whose_median_misses_by_far_is_ended():
    assert hopeless(measurement(*answers(20, ttft=0.7))) == "TTFT p50 above 600 ms"
    assert hopeless(measurement(*answers(20, gap=0.13))) == "ITL p50 above 120 ms"
    assert hopeless(measurement(*answers(20, ttft=0.5))) is None
    assert hopeless(measurement(*answers(3, ttft=9))) is None
