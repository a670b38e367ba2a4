"""Alarms on latency.

Over the SLO, over what was measured, and what chance makes of few requests.
"""

from __future__ import annotations

import math

import pytest

from stacks.alarms.properties import alarms
from tests.synth.deployments import one, with_endpoint, with_locks
from tests.synth.scaled import with_serving
from tests.unit.stacks.alarms.test_properties import watched_values

pytestmark = pytest.mark.unit

OWN = one("dev", "sentence-embedder")


def test_latency_is_the_slo_in_microseconds():
    alarm = alarms(OWN)["Latency"]
    stats = {
        (stat["Metric"]["MetricName"], stat["Period"])
        for stat in (query.get("MetricStat") for query in alarm["Metrics"])
        if stat
    }
    assert (stats, alarm["Threshold"]) == ({("ModelLatency", 60)}, 50_000)
    assert "Latency" not in alarms(with_endpoint(OWN, latency_slo_ms=None))


def minute(requests, p95, p99):
    return {
        ("ModelLatency", name): value
        for name, value in (("SampleCount", requests), ("p95", p95), ("p99", p99))
    }


def test_latency_of_few_requests_is_not_their_slowest():
    minutes = [minute(300, 20_000, 60_000), minute(299, 20_000, 60_000), minute(1, 70_000, 70_000)]
    assert watched_values(alarms(OWN)["Latency"], minutes) == [60_000, 20_000, 70_000]


@pytest.mark.parametrize("requests", [1, 10, 20, 60, 100, 200, 299, 300, 1000, 10_000])
def test_latency_takes_no_version_back_that_keeps_its_slo(requests):
    # One request in 200 is over an SLO that one in 100 may miss.
    assert chance_of_an_alarm(requests, 0.005) < 0.003


@pytest.mark.parametrize("requests", [60, 100, 200, 299, 300, 1000, 10_000])
def test_latency_takes_a_version_back_of_which_one_request_in_ten_is_slow(requests):
    # As of a canary of a tenth, or one instance of ten.
    assert chance_of_an_alarm(requests, 0.1) > 0.95


def chance_of_an_alarm(requests, slow):
    """That a percentile of so many requests is over the SLO in enough minutes, where each is slow
    by this chance.
    """
    alarm = alarms(OWN)["Latency"]
    (percentile,) = watched_values(alarm, [minute(requests, 95, 99)])
    fewest = requests - math.ceil(requests * percentile / 100) + 1
    over = 1 - math.fsum(
        math.comb(requests, k) * slow**k * (1 - slow) ** (requests - k) for k in range(fewest)
    )
    points, periods = alarm["DatapointsToAlarm"], alarm["EvaluationPeriods"]
    return sum(
        math.comb(periods, k) * over**k * (1 - over) ** (periods - k)
        for k in range(points, periods + 1)
    )


def test_drift_is_half_as_much_again_as_the_benchmark_says_or_halfway_to_the_slo():
    # Batch 8: p99 20 ms, behind another batch of 20 ms, after 0.1 ms in the queue: 40.1 ms; x 1.5 =
    # 60.15, rounded up.
    assert alarms(with_endpoint(OWN, latency_slo_ms=85.0))["Drift"]["Threshold"] == 61_000
    # (40.1 + 50) / 2 = 45.05, rounded up.
    assert alarms(OWN)["Drift"]["Threshold"] == 46_000
    # Without an SLO the best rate is batch 8's, too; with 200 ms as well.
    assert alarms(with_endpoint(OWN, latency_slo_ms=None))["Drift"]["Threshold"] == 61_000
    assert "Drift" not in alarms(with_endpoint(OWN, latency_slo_ms=1.0))
    # Two copies share the GPU: 0.1 + 20 + 2 x 20 = 60.1 ms.
    assert (
        alarms(with_endpoint(with_serving(OWN, instances_per_gpu=2), latency_slo_ms=None))["Drift"][
            "Threshold"
        ]
        == 91_000
    )


def test_drift_is_not_watched_where_nothing_was_measured():
    assert "Drift" not in alarms(with_locks(OWN, benchmark=()))
