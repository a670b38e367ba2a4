"""Options of `roundhouse recommend`: what is parsed, and what AWS would not take."""

import pytest

from roundhouse.errors import UsageError
from roundhouse.recommendation.options import (
    RecommendOptions,
    Stairs,
    UserPhase,
    parse_parameters,
    parse_stairs,
    parse_stop,
    parse_user_phase,
    require_bounds,
    traffic_pattern,
)

pytestmark = pytest.mark.unit
TYPES = ("ml.g5.xlarge", "ml.g5.2xlarge")


def load_test(**changes):
    return RecommendOptions(job_type="Advanced", **changes)


def phase(**changes):
    return UserPhase(**{"start": 2, "spawn": 2, "seconds": 120, **changes})


def test_phases_and_stairs_are_parsed():
    assert parse_user_phase("start=2,spawn=1,seconds=300") == UserPhase(
        start=2, spawn=1, seconds=300
    )
    assert parse_user_phase("start=2,seconds=300").spawn == 0
    assert parse_stairs("users=2,steps=5,seconds=600") == Stairs(users=2, steps=5, seconds=600)
    assert parse_stop("p95=99.2") == 100
    assert parse_parameters(["A=1,2,1", "B_C=x"]) == {"A": ("1", "2"), "B_C": ("x",)}


@pytest.mark.parametrize(
    ("parse", "text", "words"),
    [
        (parse_user_phase, "start=2", "write start=NUMBER"),
        (parse_user_phase, "start=2,seconds=1.5", "whole numbers"),
        (parse_user_phase, "start=2,users=3,seconds=120", "write start=NUMBER"),
        (parse_stairs, "users=2,steps=5", "write users=NUMBER"),
        (parse_stop, "p99=200", "the percentile p95 alone"),
        (lambda text: parse_parameters([text]), "A", "a variable and its values"),
        (lambda text: parse_parameters([text, text]), "A=1", "is given twice"),
    ],
)
def test_refuses_words_that_are_no_option(parse, text, words):
    with pytest.raises(UsageError, match=words):
        parse(text)


def test_the_default_load_is_two_users_and_two_more_each_minute():
    pattern = traffic_pattern(load_test())
    assert pattern["Phases"] == [
        {"InitialNumberOfUsers": 2, "SpawnRate": 2, "DurationInSeconds": 1500}
    ]
    assert pattern["TrafficType"] == "PHASES"
    stairs = traffic_pattern(load_test(stairs=Stairs(users=1, steps=4, seconds=480)))
    assert stairs == {
        "TrafficType": "STAIRS",
        "Stairs": {"DurationInSeconds": 480, "NumberOfSteps": 4, "UsersPerStep": 1},
    }


def test_a_jobs_time_is_that_of_its_loads_and_starts():
    options = load_test(phases=(phase(),), parameters={"A": ("1", "2", "3")})
    assert options.tests(TYPES) == 6
    assert options.duration_seconds(TYPES) == 6 * (120 + 600)
    assert load_test(
        phases=(phase(),), parameters={"A": ("1", "2", "3")}, parallel=2
    ).duration_seconds(TYPES) == 3 * (120 + 600)
    assert RecommendOptions().duration_seconds(TYPES) == 2700
    require_bounds(options, TYPES)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (load_test(phases=(phase(start=4),)), "start 4 is not allowed by AWS; 1 to 3"),
        (load_test(phases=(phase(spawn=4),)), "spawn 4 is not allowed by AWS; 0 to 3"),
        (load_test(phases=(phase(seconds=60),)), "seconds 60 is not allowed by AWS; 120 to 3600"),
        (load_test(phases=(phase(spawn=3, seconds=300), phase(start=1))), "ends with 17 users"),
        (load_test(stairs=Stairs(users=4, steps=1, seconds=120)), "users 4 is not allowed"),
        (load_test(stairs=Stairs(users=1, steps=0, seconds=120)), "steps 0"),
        (
            load_test(stairs=Stairs(users=1, steps=1, seconds=120), phases=(phase(),)),
            "another traffic pattern",
        ),
        (load_test(max_invocations=0), "--max-invocations 0"),
        (load_test(parameters={"A": ("1", "2", "3", "4")}), "4 values; AWS takes 3"),
        (load_test(parameters=dict.fromkeys("ABCDEF", ("1",))), "6 variables; AWS takes 5"),
        (load_test(parameters={"A": ("x" * 129,)}), "is longer than 128"),
        (load_test(parameters={"A" * 65: ("1",)}), "is longer than 64"),
        (load_test(max_tests=1), "the job has 2 combinations"),
        (load_test(job_seconds=18_001), "--job-seconds: 18,001 s are not allowed"),
        (load_test(job_seconds=60), "is shorter than one load of 1500 s"),
        (load_test(parameters={"A": ("1", "2", "3"), "B": ("1", "2")}), "the job: 25,200 s"),
        (RecommendOptions(latency_ms=5), "--stop-at: is of load tests"),
        (RecommendOptions(parallel=2), "--parallel: is of load tests"),
    ],
)
def test_refuses_what_aws_would(options, words):
    with pytest.raises(UsageError, match=words):
        require_bounds(options, TYPES)


def test_refuses_eleven_types_and_tells_all_faults_at_once():
    options = load_test(phases=(phase(start=9, seconds=120, spawn=9),), job_seconds=18_000)
    with pytest.raises(UsageError) as raised:
        require_bounds(options, tuple(f"type-{number}" for number in range(11)))
    assert len(str(raised.value).splitlines()) == 3
    assert "takes 10 at most" in str(raised.value)
