"""An endpoint's alarms.

Thresholds recomputed by hand from what the locks say, and what trips them.
"""

from __future__ import annotations

import re

import pytest

from local_cloud.cloudwatch.metric_math import watched_series
from onboarding.hosting_spec import AsynchronousSpec
from stacks.alarms.properties import alarms, endpoint_alarms, rollback_alarm_ids
from stacks.dashboards.overview import GRAVEST
from stacks.rollout import WAIT_SECONDS, deployment_config
from tests.synth.deployments import (
    one,
    with_endpoint,
    with_instance_type,
    with_locks,
    with_scaling,
    with_server,
)
from tests.synth.endpoint_cases import (
    BESIDE,
    MODEL,
    POOLS,
    QUEUE,
    beside,
    endpoint_settings,
    example,
    template,
)
from tests.synth.scaled import with_served, with_variant

pytestmark = pytest.mark.unit

OWN, SHARED = one("dev", "sentence-embedder"), one("dev", "text-shared")
PYTHON = one("local", "sentence-embedder")


def with_rollout(deployment, rollout, fewest):
    return with_scaling(with_endpoint(deployment, rollout=rollout), min=fewest, max=fewest)


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


def test_triton_takes_back_at_half_of_what_a_broken_first_step_shows():
    # One instance at least: a canary is half of the fleet, so a broken one fails half of the
    # requests; half of that is 0.25.
    assert alarms(OWN)["ServerErrors"]["Threshold"] == 0.25
    # Ten instances at least: a canary is 10 %.
    assert alarms(with_rollout(OWN, "canary", 10))["ServerErrors"]["Threshold"] == 0.05
    assert alarms(with_rollout(OWN, "linear", 10))["ServerErrors"]["Threshold"] == 0.125
    assert alarms(with_rollout(OWN, "all-at-once", 10))["ServerErrors"]["Threshold"] == 0.25


def test_people_hear_of_few_errors_all_the_same():
    own, shared, python = alarms(OWN), alarms(SHARED), alarms(PYTHON)
    assert (own["EarlyServerErrors"]["Threshold"], shared["EarlyClientErrors"]["Threshold"]) == (
        0.01,
        0.05,
    )
    assert (shared["ServerErrors"]["Threshold"], shared["ClientErrors"]["Threshold"]) == (
        0.01,
        0.25,
    )
    assert (python["ServerErrors"]["Threshold"], python["ClientErrors"]["Threshold"]) == (
        0.01,
        0.05,
    )
    assert not {"EarlyClientErrors", "EarlyServerErrors"} & python.keys()
    assert "EarlyClientErrors" not in own and "EarlyServerErrors" not in shared


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
    queue = with_endpoint(OWN, asynchronous=AsynchronousSpec())
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
    assert "NoAnswers" in rollback_alarm_ids(queue)


# --- rollback


def test_only_triton_behind_a_multi_model_endpoint_takes_back_on_4xx():
    assert rollback_alarm_ids(OWN) == ("ServerErrors", "NoAnswers", "Latency")
    assert rollback_alarm_ids(PYTHON) == ("ServerErrors", "NoAnswers", "Latency")
    assert rollback_alarm_ids(SHARED) == ("ServerErrors", "NoAnswers", "Latency", "ClientErrors")
    assert rollback_alarm_ids(with_endpoint(OWN, latency_slo_ms=None)) == (
        "ServerErrors",
        "NoAnswers",
    )


def test_rollback_comes_within_the_wait_between_two_steps():
    for deployment in (OWN, SHARED, PYTHON):
        found = alarms(deployment)
        for name in rollback_alarm_ids(deployment):
            stats = [
                query["MetricStat"]
                for query in found[name].get("Metrics", ())
                if "MetricStat" in query
            ]
            period = max([stat["Period"] for stat in stats], default=found[name].get("Period"))
            # CloudWatch has a minute's value a minute late at the latest.
            assert period * (found[name]["DatapointsToAlarm"] + 1) <= WAIT_SECONDS
            assert found[name]["TreatMissingData"] == "notBreaching"


@pytest.mark.parametrize("rollout", ["canary", "linear", "all-at-once"])
def test_old_fleet_stays_until_an_alarm_could_have_tripped_after_the_last_step(rollout):
    deployment = with_endpoint(OWN, rollout=rollout)
    policy = deployment_config(deployment, [])["BlueGreenUpdatePolicy"]
    watched = [alarms(deployment)[name] for name in rollback_alarm_ids(deployment)]
    assert policy["TerminationWaitInSeconds"] >= 60 * (
        max(alarm["DatapointsToAlarm"] for alarm in watched) + 1
    )


def test_every_production_variant_takes_back_the_gravest_first_and_a_shadow_nothing():
    several = OWN
    for name in ("b", "c", "d"):
        several = with_variant(several, name)
    several = with_variant(several, "later", role="shadow")
    ids = rollback_alarm_ids(several)
    assert ids[:8] == (
        "ServerErrors",
        "ServerErrorsB",
        "ServerErrorsC",
        "ServerErrorsD",
        *(f"NoAnswers{x}" for x in ("", *"BCD")),
    )
    assert len(ids) == 12 and not any("Later" in alarm_id for alarm_id in ids)
    assert {"ServerErrorsLater", "LatencyLater", "NoInstancesLater"} <= alarms(several).keys()
    assert alarms(several)["ServerErrorsLater"]["Threshold"] == 0.01


def test_alarms_that_only_notify_wait_for_the_endpoint():
    resources = template({MODEL: endpoint_settings("latency_slo_ms: 50")})["Resources"]
    endpoint = set(resources["Endpoint"]["DependsOn"])
    found = {
        name: resource
        for name, resource in resources.items()
        if resource["Type"] == "AWS::CloudWatch::Alarm"
    }
    assert {
        name for name, item in found.items() if "DependsOn" not in item
    } == endpoint & found.keys()
    assert resources["NoInstances"]["DependsOn"] == ["Endpoint"]


# --- hosts


def test_no_instances_is_a_metric_that_is_missing():
    alarm = alarms(OWN)["NoInstances"]
    assert (alarm["MetricName"], alarm["Statistic"], alarm["TreatMissingData"]) == (
        "MemoryUtilization",
        "SampleCount",
        "breaching",
    )
    assert (alarm["ComparisonOperator"], alarm["Threshold"]) == ("LessThanThreshold", 1)


def test_no_instances_is_well_where_there_may_be_none():
    queue = with_scaling(with_endpoint(OWN, asynchronous=AsynchronousSpec()), min=0)
    assert "NoInstances" not in alarms(queue)
    assert "NoInstances" in alarms(with_scaling(queue, min=1))


@pytest.mark.parametrize(
    ("instance", "gpus"), [("ml.g5.xlarge", 1), ("ml.g5.12xlarge", 4), ("ml.g5.48xlarge", 8)]
)
def test_gpu_memory_is_of_one_gpu(instance, gpus):
    alarm = alarms(example({MODEL: {"ml.g5.xlarge": instance}}))["GpuMemory"]
    assert alarm["Threshold"] == 90
    if gpus == 1:
        assert (alarm["MetricName"], alarm["Statistic"]) == ("GPUMemoryUtilization", "Maximum")
    else:
        assert watched_values(alarm, [{("GPUMemoryUtilization", "Maximum"): 92.0 * gpus}]) == [92.0]


def test_python_server_fills_the_first_gpu_alone():
    server = with_server(with_instance_type(OWN, gpu_count=4), "python")
    assert alarms(server)["GpuMemory"]["MetricName"] == "GPUMemoryUtilization"


def test_cpu_has_no_gpu_memory_and_a_multi_model_disk_is_a_cache():
    assert "GpuMemory" not in alarms(PYTHON) and "Disk" in alarms(PYTHON)
    assert "Disk" not in alarms(SHARED)


def test_memory_is_not_watched_where_models_push_each_other_out():
    crowded = with_locks(SHARED, device_memory_mib=15_000.0)
    assert {"GpuMemory", "HostMemory"} <= alarms(with_locks(SHARED, device_memory_mib=500.0)).keys()
    assert not {"GpuMemory", "HostMemory"} & alarms(crowded).keys()


# --- load


def test_saturation_is_the_measured_rate_of_a_minute():
    # 8 rows in 20 ms are 400 a second.
    assert alarms(OWN)["Saturation"]["Threshold"] == 24_000
    assert alarms(with_served(OWN, 310.25))["Saturation"]["Threshold"] == 18_615
    assert "Saturation" not in alarms(with_locks(OWN, benchmark=()))
    assert "Saturation" not in alarms(with_endpoint(OWN, asynchronous=AsynchronousSpec()))


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


def test_loading_waits_twice_as_long_as_the_slowest_model_takes():
    # 90 MiB at 20 MiB/s are 4.5 s, and 2.5 s to load: 7 s.
    assert alarms(SHARED)["LoadingWait"]["Threshold"] == 14_000_000
    assert alarms(with_locks(SHARED, load_seconds=500.0))["LoadingWait"]["Threshold"] == 60_000_000
    assert not {"CacheHits", "LoadingWait"} & alarms(OWN).keys()


def test_oldest_request_waits_longer_than_an_instance_takes_to_come():
    alarm = alarms(example({MODEL: endpoint_settings(QUEUE)}))["OldestRequest"]
    # 300 s until scaling asks, 1800 s of search, 90 MiB at 20 MiB/s + 60 s rounded up, SageMaker's
    # own 480 s.
    assert alarm["Threshold"] == 300 + 1800 + 300 + 480
    assert alarm["Dimensions"] == [{"Name": "EndpointName", "Value": "cloud-example"}]


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
    assert not [(a, b) for a in GRAVEST for b in GRAVEST if a.endswith(f"-{b}")]


@pytest.mark.parametrize(
    "deployment", [OWN, SHARED, PYTHON, with_endpoint(OWN, asynchronous=AsynchronousSpec())]
)
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
            assert named == {query["Id"] for query in queries} - {"watched"}
            assert "SEARCH" not in returned(alarm)["Expression"]
            assert sum(query["ReturnData"] for query in queries) == 1


@pytest.mark.parametrize(
    "deployment", [OWN, SHARED, PYTHON, with_endpoint(OWN, asynchronous=AsynchronousSpec())]
)
def test_every_alarm_tells_the_topic_and_is_of_a_kind_that_dashboards_know(deployment):
    environment = deployment.environment
    topic = f"arn:aws:sns:us-east-1:{environment.account}:roundhouse-{environment.name}-alarms"
    for alarm in alarms(deployment).values():
        assert alarm["AlarmActions"] == [topic]
        # A new alarm becomes OK when its endpoint is created, and would send a mail.
        assert "OKActions" not in alarm
        assert len(alarm["AlarmDescription"]) < 1024 and len(alarm.get("Metrics", ())) <= 10
    assert {entry.kind for entry in endpoint_alarms(deployment)} <= set(GRAVEST)
