"""Instances under load, which a minute of a second here scales, and one that dies is replaced."""

import os
import signal

import pytest

from tests.local_cloud.account import marked_processes, track, until, wait_until_gone
from tests.local_cloud.load import CALLERS, steady_load

pytestmark = pytest.mark.local_cloud

METRIC = {"PredefinedMetricType": "SageMakerVariantInvocationsPerInstance"}
PAUSE_SECONDS, TARGET = CALLERS / 10, 240
"""Ten requests a second need three instances of so many a minute, and little of the machine."""


def count(cloud, name):
    """The present instances once nothing is under way, else None."""
    shown = cloud.client("sagemaker").describe_endpoint(EndpointName=name)
    settled = shown["EndpointStatus"] == "InService"
    return shown["ProductionVariants"][0]["CurrentInstanceCount"] if settled else None


def latest(load):
    """Which instances gave the newest answers."""
    return {answer["instance"] for answer in load.answers[-60:]}


def test_load_makes_instances_more_and_its_end_fewer(cloud):
    cloud.serve("scaled")
    track(
        cloud,
        "endpoint/scaled/variant/AllTraffic",
        "variant:DesiredInstanceCount",
        1,
        "invocations",
        TargetValue=TARGET,
        PredefinedMetricSpecification=METRIC,
        ScaleInCooldown=60,
    )
    with steady_load(cloud, "scaled", pause_seconds=PAUSE_SECONDS) as load:
        until(lambda: count(cloud, "scaled") == 3)
        load.forget_answers()
        until(lambda: len(latest(load)) == 3)
    until(lambda: count(cloud, "scaled") == 1)
    cloud.destroy("scaled")


def test_a_killed_instance_is_passed_by_and_replaced(cloud):
    cloud.serve("kill", InitialInstanceCount=3)
    with steady_load(cloud, "kill", pause_seconds=0) as load:
        until(lambda: len({answer["instance"] for answer in load.answers}) == 3)
        os.kill(max(marked_processes("kill")), signal.SIGKILL)
        until(lambda: len(now := latest(load)) == 3 and "AllTraffic-4" in now)
    assert len(load.failures) <= CALLERS, (
        "each caller loses at most the request that the killed instance was answering"
    )
    assert {error.response["OriginalStatusCode"] for error in load.failures} <= {0}
    assert count(cloud, "kill") == 3
    cloud.destroy("kill")
    assert wait_until_gone("kill")
