"""Users by the minute, conditions that end a load, and the minute that a result is of."""

import pytest

from local_cloud.sagemaker.recommender.scaling_recommendation import scaling_recommendation
from local_cloud.sagemaker.recommender.traffic import (
    Ramp,
    Stopping,
    Window,
    plateau,
    ramps,
    stopping,
    users_at,
)

pytestmark = pytest.mark.unit


def window(users, answers, milliseconds=10.0, errors=0):
    return Window(
        users=users, seconds=1.0, latencies=(milliseconds / 1000,) * answers, errors=errors
    )


def test_phases_spawn_users_by_the_minute_and_begin_anew():
    phases = [
        {"InitialNumberOfUsers": 2, "SpawnRate": 2, "DurationInSeconds": 120},
        {"InitialNumberOfUsers": 3, "SpawnRate": 0, "DurationInSeconds": 120},
    ]
    traffic = ramps({"TrafficPattern": {"TrafficType": "PHASES", "Phases": phases}})
    seconds = (0, 59, 60, 119, 120, 239, 240)
    assert [users_at(traffic, second) for second in seconds] == [2, 3, 4, 5, 3, 3, None]


def test_stairs_share_their_duration():
    stairs = {"DurationInSeconds": 600, "NumberOfSteps": 5, "UsersPerStep": 3}
    traffic = ramps({"TrafficPattern": {"TrafficType": "STAIRS", "Stairs": stairs}})
    assert [users_at(traffic, second) for second in (0, 120, 599, 600)] == [3, 6, 15, None]


def test_a_default_job_doubles_its_users():
    assert [ramp.users for ramp in ramps({})] == [1, 2, 4, 8, 16, 32, 64, 128]
    assert users_at((Ramp(users=1, spawn_rate=3, seconds=60),), 40) == 3


@pytest.mark.parametrize(
    ("conditions", "windows", "reason"),
    [
        ({}, [window(1, 10)], None),
        ({"MaxInvocations": 600}, [window(1, 10)], "MaxInvocations"),
        ({"MaxInvocations": 601}, [window(1, 10)], None),
        (
            {"ModelLatencyThresholds": [{"Percentile": "P95", "ValueInMilliseconds": 9}]},
            [window(1, 10)],
            "ModelLatencyThresholds",
        ),
        ({}, [window(1, 10), window(2, 10), window(3, 10)], "FlatInvocations"),
        ({}, [window(1, 10), window(2, 12), window(3, 10)], None),
        ({}, [window(2, 10), window(2, 10), window(2, 10)], None),
        (
            {"FlatInvocations": "Continue"},
            [window(1, 10), window(2, 10), window(3, 10)],
            None,
        ),
    ],
)
def test_a_condition_ends_the_load(conditions, windows, reason):
    assert stopping(conditions).reason(windows) == reason


def test_no_answer_meets_no_latency():
    assert Stopping(latency_ms=5).reason([window(1, 0, errors=9)]) is None


def test_a_result_is_of_the_moment_when_invocations_begin_to_plateau():
    windows = [window(1, 50), window(2, 98, 12), window(3, 100, 30), window(4, 100, 40)]
    found = plateau(windows)
    assert found is windows[1]
    assert (found.a_minute, round(found.mean_seconds * 1000)) == (5880, 12)
    assert plateau([window(1, 0, errors=5)]) is None


def test_percentile_is_one_that_was_measured():
    latencies = tuple(number / 1000 for number in range(1, 101))
    assert Window(users=1, seconds=1, latencies=latencies).percentile_seconds() == 0.095


def test_scaling_counts_what_the_traffic_needs_at_half_the_plateau():
    recommendation = {
        "RecommendationId": "j/1",
        "EndpointConfiguration": {"EndpointName": "e"},
        "Metrics": {"MaxInvocations": 1000, "ModelLatency": 9},
    }
    request = {
        "InferenceRecommendationsJobName": "j",
        "RecommendationId": "j/1",
        "ScalingPolicyObjective": {
            "MinInvocationsPerMinute": 400,
            "MaxInvocationsPerMinute": 1600,
        },
    }
    reply = scaling_recommendation(request, recommendation)
    configuration = reply["DynamicScalingConfiguration"]
    assert (configuration["MinCapacity"], configuration["MaxCapacity"]) == (1, 4)
    (policy,) = configuration["ScalingPolicies"]
    assert policy["TargetTracking"]["TargetValue"] == 500
