"""The headline and the JSON of a result."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from roundhouse.measure.options import Loop
from roundhouse.measure.result import Result
from tests.unit.roundhouse.measure.phases import (
    HERE,
    load_of,
    load_test,
    measurement,
    searched,
    second,
)


def step(number, rate, *milliseconds):
    return measurement(*map(second, milliseconds), rate=rate, name=f"step {number}")


HOLDING = [step(number, 1000.0, 5.0, 6.0) for number in (1, 4)]
MISSING = [step(number, 1030.0, 30.0, 40.0) for number in (2, 3)]
BROKEN_OFF = Result(
    test=load_test(), phases=[step(2, 1030.0, 30.0, 40.0)], circumstances=HERE, broken_off=True
)


def load(seconds, slo_ms=None, **changes):
    return load_of(measurement(seconds, **changes), slo_ms=slo_ms)


@pytest.mark.parametrize(
    ("result", "part"),
    [
        (
            searched(*HOLDING, *MISSING),
            "Saturates at 1,000 requests a second with p99 ≤ 20 ms: 1,000 of 1,000 answers/s, "
            "p50 5.50 ms, p95 6.00 ms, p99 6.00 ms, no errors.",
        ),
        (searched(HOLDING[0]), "Proven: 1,000 requests a second"),
        (
            searched(*MISSING),
            "No load that was tried holds p99 ≤ 20 ms; the lowest was 1,030 req",
        ),
        (BROKEN_OFF, "No step was run to its end, so nothing is known of p99 ≤ 20 ms. Broken o"),
        (
            load(second(count=0, errors={"no connection": 3})),
            "No request was answered: 3 errors (most: no connection).",
        ),
        (load(second(count=0)), "No request was answered."),
        (load(second(offered=20_000)), "step 1: 1,000 of 20,000 answers/s, p50"),
        (load(second(errors={"HTTP 503: full": 7})), "7 errors (most: HTTP 503: full)"),
        (load(second(), loop=Loop.closed), "A closed loop: users wait for answers before they as"),
        (load(second(), slo_ms=1.0), "missed the SLO"),
        (replace(searched(*MISSING), ended="it is late"), "The search ended early: it is late."),
        (load(second(cpu_share=0.99)), "itself takes part in these numbers: the load tool used 9"),
    ],
    ids=[
        "saturated", "no miss", "no hold", "broken off", "unanswered", "nothing", "few", "errors",
        "closed", "missed", "ended", "tool",
    ],
)  # fmt: skip
def test_headline_names_what_was_found_and_what_makes_it_doubtful(result, part):
    assert part in result.headline


def test_a_load_within_the_slo_misses_nothing():
    result = load(second(), slo_ms=20.0)
    assert "missed" not in result.headline
    assert not result.slo_missed
    assert load(second(), slo_ms=1.0).slo_missed


def test_the_highest_load_is_of_the_last_step_that_held_it():
    result = searched(*HOLDING, step(3, 1000.0, 30.0, 40.0), *MISSING)
    assert result.highest.phase is result.phases[1] and result.highest.load == 1000


def test_json_is_plain_and_whole():
    result = searched(*HOLDING, *MISSING)
    data = json.loads(json.dumps(result.document(), allow_nan=False))
    highest = {"load": 1000.0, "phase": 1, "lowest_missed": 1030.0, "exact": True}
    assert data["highest"] == highest
    assert data["slo"] == {"percentile": 99.0, "limits_ms": {"latency": 20.0}}
    assert data["phases"][0]["times_ms"]["latency"]["p99.9"] is None
    assert [phase["outcome"] for phase in data["phases"]] == ["held", "held", "missed", "missed"]
    assert data["circumstances"]["machine"] == "a machine"
