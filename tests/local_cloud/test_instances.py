"""Several instances behind one endpoint.

Routed, scaled, replaced when one dies, short when there are none to be had.
"""

import os
import signal

import pytest

from tests.local_cloud.account import (
    IMAGE,
    MARK,
    ROLE,
    endpoint_config,
    marked_processes,
    until,
    wait_until_gone,
)
from tests.local_cloud.build_machine import write_capacity
from tests.local_cloud.load import CALLERS, steady_load

pytestmark = pytest.mark.local_cloud
BY_LOAD = {"RoutingStrategy": "LEAST_OUTSTANDING_REQUESTS"}


@pytest.fixture
def sagemaker(cloud):
    return cloud.client("sagemaker")


@pytest.fixture
def capacity(cloud):
    """Writes how many instances of a type the cloud has."""
    yield lambda **limits: write_capacity(
        cloud.state, **{f"ml.{name.replace('_', '.')}": most for name, most in limits.items()}
    )
    write_capacity(cloud.state)


def put_model(cloud, name, greeting):
    container = {
        "Image": IMAGE,
        "ModelDataUrl": cloud.put_archive(f"{name}.tar.gz", greeting),
        "Environment": {MARK: name.split("-")[0]},
    }
    cloud.client("sagemaker").create_model(
        ModelName=name, ExecutionRoleArn=ROLE, PrimaryContainer=container
    )


def counts(shown):
    variants = shown["ProductionVariants"]
    return {variant["VariantName"]: variant["CurrentInstanceCount"] for variant in variants}


def test_a_killed_instance_is_passed_by_and_replaced(cloud, sagemaker):
    cloud.serve("kill", InitialInstanceCount=3)
    with steady_load(cloud, "kill", pause_seconds=0) as load:
        until(lambda: len({answer["instance"] for answer in load.answers}) == 3)
        os.kill(max(marked_processes("kill")), signal.SIGKILL)
        until(lambda: len(now := latest(load)) == 3 and "AllTraffic-4" in now)
    assert len(load.failures) <= CALLERS, (
        "each caller loses at most the request that the killed instance was answering"
    )
    assert {error.response["OriginalStatusCode"] for error in load.failures} <= {0}
    shown = sagemaker.describe_endpoint(EndpointName="kill")
    assert (shown["EndpointStatus"], counts(shown)) == ("InService", {"AllTraffic": 3})
    cloud.destroy("kill")
    assert wait_until_gone("kill")


def latest(load):
    """Which instances gave the newest answers."""
    return {answer["instance"] for answer in load.answers[-60:]}


def pooled(*types, **more):
    pools = [{"InstanceType": name, "Priority": at} for at, name in enumerate(types, start=1)]
    return {"InstancePools": pools, "RoutingConfig": BY_LOAD, "InstanceType": None, **more}


def test_instance_pools_are_tried_by_priority_each_with_its_own_model(cloud, sagemaker, capacity):
    put_model(cloud, "pools-1", "for g6")
    put_model(cloud, "pools-g5", "for g5")
    capacity(g6_xlarge=1, g5_2xlarge=0)
    variant = pooled("ml.g6.xlarge", "ml.g5.2xlarge", "ml.g5.xlarge", InitialInstanceCount=2)
    for pool in variant["InstancePools"][1:]:
        pool["ModelNameOverride"] = "pools-g5"
    config = endpoint_config("pools", "1", variant=variant)
    config["ProductionVariants"][0].pop("InstanceType")
    sagemaker.create_endpoint_config(**config)
    sagemaker.create_endpoint(EndpointName="pools", EndpointConfigName="pools-1")
    shown = cloud.wait_for("pools")["ProductionVariants"][0]
    assert shown["InstancePools"] == [
        {"InstanceType": "ml.g5.xlarge", "CurrentInstanceCount": 1},
        {"InstanceType": "ml.g6.xlarge", "CurrentInstanceCount": 1},
    ]
    assert {cloud.invoke("pools")["greeting"] for _ in range(40)} == {"for g6", "for g5"}
    sagemaker.delete_endpoint(EndpointName="pools")
    assert wait_until_gone("pools")
