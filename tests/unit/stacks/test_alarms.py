"""An endpoint's alarms: what trips them, and what chance makes of few requests."""

from __future__ import annotations

import math
import re

import pytest
from aws_cdk import App, Stack
from aws_cdk import aws_sns as sns
from aws_cdk.assertions import Template

from local_cloud.cloudwatch.metric_math import watched_series
from onboarding.arns import alarm_topic
from onboarding.hosting_spec import AsynchronousSpec
from roundhouse_cdk.endpoint_metrics import EndpointAlarms, EndpointAlarmsProps
from stacks.alarms import endpoint_alarms, rollback_alarms
from stacks.environment_stack import keep_ids
from tests.synth.deployments import one, with_endpoint, with_locks, with_scaling, with_variant
from tests.synth.endpoint_cases import BESIDE, MODEL, POOLS, beside, endpoint_settings, example
from tests.unit.onboarding.test_memory import CAPACITY_MIB, with_models

pytestmark = pytest.mark.unit

OWN, SHARED = one("dev", "sentence-embedder"), one("dev", "text-shared")
PYTHON = one("local", "sentence-embedder")
QUEUED = with_endpoint(OWN, asynchronous=AsynchronousSpec())


def alarms(deployment):
    """Properties of every alarm by its id, as `EndpointAlarms` gives them to CloudFormation."""
    stack = Stack(App(analytics_reporting=False), "Alarms")
    topic = sns.Topic.from_topic_arn(stack, "Topic", alarm_topic(deployment.environment))
    props = EndpointAlarmsProps(alarms=endpoint_alarms(deployment), topic=topic)
    keep_ids(EndpointAlarms(stack, "Endpoint", props=props).alarms)
    resources = Template.from_stack(stack).to_json()["Resources"]
    return {name: resource["Properties"] for name, resource in resources.items()}


def rollback_ids(deployment):
    return [alarm.id for alarm in rollback_alarms(endpoint_alarms(deployment))]


def returned(alarm):
    return next(query for query in alarm["Metrics"] if query["ReturnData"])


def watched_values(alarm, minutes):
    """What an alarm on metric math sees of minutes that say each metric's value, by (name,
    statistic).
    """

    def read(question, period):
        return {
            60.0 * at: minute[(question.name, question.statistic)]
            for at, minute in enumerate(minutes)
        }

    times = [60.0 * at for at in range(len(minutes))]
    return list(watched_series(alarm["Metrics"], read, times).values())


def errors(metric, *pairs):
    """Minutes by (failed, of how many)."""
    return [
        {(metric, "Sum"): failed, (metric, "Average"): failed / count} for failed, count in pairs
    ]


# --- errors


def test_share_of_few_requests_says_nothing_unless_all_fail():
    alarm = alarms(OWN)["ServerErrors"]
    minutes = errors("Invocation5XXErrors", (2, 4), (3, 4), (2, 2), (1, 1), (0, 9), (300, 1000))
    assert watched_values(alarm, minutes) == [0, 0.75, 1, 1, 0, 0.3]


def test_requests_without_an_answer_are_neither_clients_nor_servers_errors():
    of = ("InvocationModelErrors", "Invocation4XXErrors", "Invocation5XXErrors")

    def minute(every, clients, servers, count):
        found = {
            (name, "Average"): failed / count
            for name, failed in zip(of, (every, clients, servers), strict=True)
        }
        return {**found, ("InvocationModelErrors", "Sum"): every}

    seen = watched_values(
        alarms(OWN)["NoAnswers"],
        [minute(10, 4, 2, 100), minute(6, 4, 2, 100), minute(2, 0, 0, 100)],
    )
    assert seen == pytest.approx([0.04, 0, 0])
    assert alarms(OWN)["NoAnswers"]["Threshold"] == 0.01


def test_queue_counts_its_failures_itself_and_publishes_no_model_errors():
    queue = QUEUED
    assert "InvocationModelErrors" not in str(alarms(queue))
    assert "InvocationModelErrors" in str(alarms(OWN))

    def minute(failed, processed, clients=0, servers=0):
        of = {"InvocationFailures": failed, "InvocationsProcessed": processed}
        of |= {"Invocation4XXErrors": clients, "Invocation5XXErrors": servers}
        return {(name, "Sum"): value for name, value in of.items()}

    few = minute(2, 50)
    lost = minute(10, 90)
    answered = minute(10, 90, 6, 4)
    all_lost = minute(1, 0)
    seen = watched_values(alarms(queue)["NoAnswers"], [few, lost, answered, all_lost])
    assert seen == pytest.approx([0, 0.1, 0, 1])
    assert alarms(queue)["NoAnswers"]["Threshold"] == 0.01
    assert "NoAnswers" in rollback_ids(queue)


# --- rollback


def test_every_production_variant_takes_back_the_gravest_first_and_a_shadow_nothing():
    several = OWN
    for name in ("b", "c", "d"):
        several = with_variant(several, name)
    several = with_variant(several, "later", role="shadow")
    ids = rollback_ids(several)
    assert ids[:8] == [
        "ServerErrors",
        "ServerErrorsB",
        "ServerErrorsC",
        "ServerErrorsD",
        *(f"NoAnswers{x}" for x in ("", *"BCD")),
    ]
    assert len(ids) == 12 and not any("Later" in alarm_id for alarm_id in ids)
    assert {"ServerErrorsLater", "LatencyLater", "NoInstancesLater"} <= alarms(several).keys()
    assert alarms(several)["ServerErrorsLater"]["Threshold"] == 0.01


# --- hosts


def test_memory_is_not_watched_where_models_push_each_other_out():
    crowded = with_locks(SHARED, device_memory_mib=15_000.0)
    assert {"GpuMemory", "HostMemory"} <= alarms(with_locks(SHARED, device_memory_mib=500.0)).keys()
    assert not {"GpuMemory", "HostMemory"} & alarms(crowded).keys()


# --- load


def test_ceiling_is_all_instances_each_over_the_scaling_target():
    alarm = alarms(OWN)["Ceiling"]
    assert (alarm["Threshold"], alarm["ComparisonOperator"]) == (4, "GreaterThanOrEqualToThreshold")

    def minute(requests, instances):
        return {
            ("Invocations", "Sum"): requests,
            ("InvocationsPerInstance", "Sum"): requests / instances,
        }

    # 12,000 a minute is the target of each.
    assert watched_values(alarm, [minute(50_000, 4), minute(47_000, 4), minute(39_000, 3)]) == [
        4,
        0,
        3,
    ]
    assert "Ceiling" not in alarms(with_scaling(OWN, max=1))


# --- multi-model and asynchronous


def test_cache_hits_collapse_at_half_of_the_models_that_fit():
    assert alarms(with_locks(SHARED, device_memory_mib=500.0))["CacheHits"]["Threshold"] == 0.5
    # Two models of 15000 MiB on an A10G: one fits.
    alarm = alarms(with_locks(SHARED, device_memory_mib=15_000.0))["CacheHits"]
    assert (alarm["Threshold"], alarm["ComparisonOperator"]) == (0.25, "LessThanThreshold")
    few, many = (
        {("ModelCacheHit", "Average"): 0.1, ("ModelCacheHit", "SampleCount"): count}
        for count in (49, 50)
    )
    assert watched_values(alarm, [few, many]) == [1, 0.1]


# --- names


def test_names_differ_in_one_account():
    several = example(
        {BESIDE: beside("{joins: example, role: variant}"), MODEL: endpoint_settings(POOLS)}
    )
    found = alarms(several)
    assert found["LatencyBeside" if "LatencyBeside" in found else "ServerErrorsBeside"][
        "AlarmName"
    ].endswith("--beside")
    assert len({element["AlarmName"] for element in found.values()}) == len(found)


def test_no_kind_ends_in_another_kind():
    of = (OWN, SHARED, PYTHON, QUEUED)
    kinds = {alarm.kind for deployment in of for alarm in endpoint_alarms(deployment)}
    assert len(kinds) > 10
    assert not [(a, b) for a in kinds for b in kinds if a.endswith(f"-{b}")]


@pytest.mark.parametrize("deployment", [OWN, SHARED, PYTHON, QUEUED])
def test_every_alarm_is_one_that_cloudwatch_takes(deployment):
    for alarm in alarms(deployment).values():
        queries = alarm.get("Metrics", [alarm])
        stats = [query["MetricStat"] for query in queries if "MetricStat" in query]
        periods = {stat["Period"] for stat in stats} or {alarm["Period"]}
        assert len(periods) == 1
        assert max(periods) % 60 == 0
        assert max(periods) * alarm["EvaluationPeriods"] <= 86_400
        assert len(alarm["AlarmName"]) <= 255 and len(stats) <= 10
        if "Metrics" in alarm:
            named = set(re.findall(r"\b[a-z]\w*\b", returned(alarm)["Expression"]))
            assert named == {query["Id"] for query in queries} - {returned(alarm)["Id"]}
            assert "SEARCH" not in returned(alarm)["Expression"]
            assert sum(query["ReturnData"] for query in queries) == 1


@pytest.mark.parametrize("deployment", [OWN, SHARED, PYTHON, QUEUED])
def test_every_alarm_tells_the_topic(deployment):
    environment = deployment.environment
    topic = f"arn:aws:sns:us-east-1:{environment.account}:roundhouse-{environment.name}-alarms"
    for alarm in alarms(deployment).values():
        assert alarm["AlarmActions"] == alarm["OKActions"] == [topic]
        assert len(alarm["AlarmDescription"]) < 1024 and len(alarm.get("Metrics", ())) <= 10


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


def test_cache_hits_collapse_at_half_of_the_models_that_fit_whichever_they_are():
    # Two large ones and two small ones: three fit at most, and of the large ones one alone.
    sizes = {
        "a": CAPACITY_MIB * 0.6,
        "b": CAPACITY_MIB * 0.6,
        "c": CAPACITY_MIB * 0.1,
        "d": CAPACITY_MIB * 0.1,
    }
    alarm = alarms(with_models(sizes))["CacheHits"]
    assert alarm["Threshold"] == 1 / 4 / 2
    assert (
        "half of the 25 % of the models that fit, whichever they are" in alarm["AlarmDescription"]
    )
    assert (
        alarms(with_models(dict.fromkeys("abcd", CAPACITY_MIB / 4)))["CacheHits"]["Threshold"]
        == 0.5
    )
