"""The synthetic day.

What its metrics say together, and the states that our alarms are in at its end.
"""

from __future__ import annotations

import pytest

from local_cloud.cloudwatch.series import Question
from onboarding.metrics import HOST, INVOCATIONS
from onboarding.model_spec import AsynchronousSpec
from roundhouse.reports.dashboards.page import alarm_state
from roundhouse.reports.dashboards.pictures import END
from roundhouse.reports.dashboards.synthetic import (
    MINUTES,
    SAMPLES,
    SyntheticMetrics,
    variant_day,
)
from stacks.alarms.properties import alarms
from tests.synth.deployments import one, with_endpoint
from tests.synth.scaled import with_variant

pytestmark = pytest.mark.unit

OWN, SHARED = one("dev", "sentence-embedder"), one("dev", "text-shared")
START = END - MINUTES * 60


def metrics(*deployments):
    return SyntheticMetrics.of(deployments, START)


def read(
    found,
    name,
    statistic,
    *,
    namespace=INVOCATIONS,
    period=60.0,
    endpoint="dev-sentence-embedder",
    **more,
):
    dimensions = {"EndpointName": endpoint, "VariantName": "AllTraffic", **more}
    return found.read(
        Question(namespace=namespace, name=name, statistic=statistic, dimensions=dimensions), period
    )


def test_day_is_the_same_every_time():
    assert variant_day(OWN, OWN.own) == variant_day(OWN, OWN.own)
    assert len(variant_day(OWN, OWN.own)) == 1440


def test_instances_follow_the_load_between_their_bounds():
    day = variant_day(OWN, OWN.own)
    assert {item.instances for item in day} == {1, 2, 3, 4}
    assert max(item.busy for item in day) > 1 and min(item.busy for item in day) < 0.3
    assert {item.reported / item.instances for item in day} == {1.0, 2.0}


def test_invocations_over_those_of_each_instance_are_the_instances():
    found = metrics(OWN)
    total, each = read(found, "Invocations", "Sum"), read(found, "InvocationsPerInstance", "Sum")
    assert {round(total[at] / each[at], 6) for at in total} == {1.0, 2.0, 3.0, 4.0}


def test_percentiles_are_in_order_and_over_the_slo_at_the_end():
    found = metrics(OWN)
    p50, p95, p99 = (read(found, "ModelLatency", name) for name in ("p50", "p95", "p99"))
    assert all(p50[at] < p95[at] < p99[at] for at in p99)
    assert p99[END - 600] > 50_000 > p99[START]


def test_longer_periods_sum_up():
    found = metrics(OWN)
    minutes, five = (
        read(found, "Invocations", "Sum"),
        read(found, "Invocations", "Sum", period=300.0),
    )
    assert five[START] == sum(minutes[START + 60 * at] for at in range(5)) and len(five) == 288


def test_metrics_are_those_that_each_kind_of_endpoint_publishes():
    queue = with_endpoint(OWN, asynchronous=AsynchronousSpec())
    kinds = {"own": OWN, "shared": SHARED, "queue": queue}
    names = {
        kind: {metric.name for metric in metrics(found).all_metrics()}
        for kind, found in kinds.items()
    }
    assert "ModelCacheHit" in names["shared"] and "ModelCacheHit" not in names["own"]
    assert "Invocations" not in names["queue"] and "ApproximateBacklogSize" in names["queue"]
    assert "GPUUtilization" in names["own"]
    assert not any(
        metric.name.startswith("GPU")
        for metric in metrics(one("local", "sentence-embedder")).all_metrics()
    )


def test_shadow_gets_a_copy_and_variants_a_share():
    several = with_variant(with_variant(OWN, "half"), "later", role="shadow")
    found = metrics(several)
    own, half, shadow = (
        sum(read(found, "Invocations", "Sum", VariantName=name).values())
        for name in ("AllTraffic", "half", "later")
    )
    assert own == pytest.approx(half, rel=0.05) and shadow == pytest.approx(own + half, rel=0.05)


def test_every_metric_of_the_day_is_one_that_sagemaker_publishes():
    from onboarding.metrics import METRICS as FACTS

    assert SAMPLES.keys() <= FACTS[INVOCATIONS].keys() | FACTS[HOST].keys()


def test_alarms_at_the_end_of_the_day_are_those_of_a_spike():
    found, watched = metrics(OWN), alarms(OWN)
    states = {name: alarm_state(alarm, found, END) for name, alarm in watched.items()}
    assert {name for name, state in states.items() if state == "ALARM"} == {
        "Latency", "Drift", "Saturation", "Ceiling", "EarlyServerErrors",
    }  # fmt: skip
    assert {name for name, state in states.items() if state == "OK"} == watched.keys() - {
        name for name, state in states.items() if state == "ALARM"
    }


def test_no_alarm_cries_at_noon():
    found = metrics(OWN, SHARED)
    noon = END - 5 * 3600
    for deployment in (OWN, SHARED):
        assert {alarm_state(alarm, found, noon) for alarm in alarms(deployment).values()} == {"OK"}


def test_no_instances_is_an_alarm_without_metrics():
    assert alarm_state(alarms(OWN)["NoInstances"], metrics(SHARED), END) == "ALARM"
    assert alarm_state(alarms(OWN)["Latency"], metrics(SHARED), END) == "OK"
