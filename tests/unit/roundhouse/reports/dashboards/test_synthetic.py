"""The synthetic day: its metrics agree, and its end raises the alarms of a spike."""

from __future__ import annotations

import pytest

from local_cloud.cloudwatch.series import Question
from onboarding.hosting_spec import AsynchronousSpec
from onboarding.metrics import HOST, INVOCATIONS, METRICS
from roundhouse.reports.dashboards.page import alarm_state
from roundhouse.reports.dashboards.pictures import END
from roundhouse.reports.dashboards.synthetic import MINUTES, SAMPLES, SyntheticMetrics, variant_day
from stacks.alarms.properties import alarms
from tests.synth.deployments import one, with_endpoint
from tests.synth.scaled import with_variant

pytestmark = pytest.mark.unit

OWN, SHARED = one("dev", "sentence-embedder"), one("dev", "text-shared")
START = END - MINUTES * 60


def day_of(*deployments):
    return SyntheticMetrics.of(deployments, START)


@pytest.fixture(scope="module")
def day():
    return day_of(OWN)


def read(day, name, statistic, *, period=60.0, variant="AllTraffic"):
    dimensions = {"EndpointName": "dev-sentence-embedder", "VariantName": variant}
    fields = {"namespace": INVOCATIONS, "name": name, "statistic": statistic}
    return day.read(Question(dimensions=dimensions, **fields), period)


def metric_names(*deployments):
    return {metric.name for metric in day_of(*deployments).all_metrics()}


def test_day_is_the_same_every_time():
    assert variant_day(OWN, OWN.own) == variant_day(OWN, OWN.own)
    assert len(variant_day(OWN, OWN.own)) == 1440


def test_instances_follow_the_load_between_their_bounds():
    minutes = variant_day(OWN, OWN.own)
    assert {minute.instances for minute in minutes} == {1, 2, 3, 4}
    busy = [minute.busy for minute in minutes]
    assert max(busy) > 1 and min(busy) < 0.3
    assert {minute.reported / minute.instances for minute in minutes} == {1.0, 2.0}


def test_invocations_over_those_of_each_instance_are_the_instances(day):
    total, single = (read(day, f"Invocations{end}", "Sum") for end in ("", "PerInstance"))
    assert {round(total[at] / single[at], 6) for at in total} == {1.0, 2.0, 3.0, 4.0}


def test_percentiles_are_in_order_and_over_the_slo_at_the_end(day):
    p50, p95, p99 = (read(day, "ModelLatency", name) for name in ("p50", "p95", "p99"))
    assert all(p50[at] < p95[at] < p99[at] for at in p99)
    assert p99[END - 600] > 50_000 > p99[START]


def test_longer_periods_sum_up(day):
    minutes = read(day, "Invocations", "Sum")
    five = read(day, "Invocations", "Sum", period=300.0)
    assert five[START] == sum(minutes[START + 60 * at] for at in range(5)) and len(five) == 288


def test_metrics_are_those_that_each_kind_of_endpoint_publishes():
    own, shared = metric_names(OWN), metric_names(SHARED)
    queue = metric_names(with_endpoint(OWN, asynchronous=AsynchronousSpec()))
    assert "ModelCacheHit" in shared and "ModelCacheHit" not in own
    assert "Invocations" not in queue and "ApproximateBacklogSize" in queue
    assert "GPUUtilization" in own
    local = metric_names(one("local", "sentence-embedder"))
    assert local and not any(name.startswith("GPU") for name in local)
    assert metric_names() == set()


def test_shadow_gets_a_copy_and_variants_a_share():
    day = day_of(with_variant(with_variant(OWN, "half"), "later", role="shadow"))
    own, half, shadow = (
        sum(read(day, "Invocations", "Sum", variant=name).values())
        for name in ("AllTraffic", "half", "later")
    )
    assert own == pytest.approx(half, rel=0.05) and shadow == pytest.approx(own + half, rel=0.05)


def test_every_metric_of_the_day_is_one_that_sagemaker_publishes():
    assert SAMPLES.keys() <= METRICS[INVOCATIONS].keys() | METRICS[HOST].keys()


def test_alarms_at_the_end_of_the_day_are_those_of_a_spike(day):
    states = {name: alarm_state(alarm, day, END) for name, alarm in alarms(OWN).items()}
    spike = {"Latency", "Drift", "Saturation", "Ceiling", "EarlyServerErrors"}
    assert states == {name: "ALARM" if name in spike else "OK" for name in states}
    assert spike <= states.keys()


def test_no_alarm_cries_at_noon():
    day, noon = day_of(OWN, SHARED), END - 5 * 3600
    for deployment in (OWN, SHARED):
        assert {alarm_state(alarm, day, noon) for alarm in alarms(deployment).values()} == {"OK"}


def test_no_instances_is_an_alarm_without_metrics():
    day = day_of(SHARED)
    assert alarm_state(alarms(OWN)["NoInstances"], day, END) == "ALARM"
    assert alarm_state(alarms(OWN)["Latency"], day, END) == "OK"
