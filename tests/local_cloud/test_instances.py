"""Several instances behind one endpoint.

Routed, scaled, replaced when one dies, short when there are none to be had.
"""

import os
import signal
import threading
from collections import Counter

import pytest
from botocore.exceptions import ClientError

from tests.local_cloud.account import (
    IMAGE,
    MARK,
    ROLE,
    endpoint_config,
    endpoint_resources,
    marked_processes,
    refusal,
    until,
    wait_until_gone,
)
from tests.local_cloud.build_machine import write_capacity
from tests.local_cloud.load import CALLERS, steady_load

pytestmark = pytest.mark.local_cloud
SHORT = (
    "Unable to provision requested ML compute capacity due to InsufficientInstanceCapacity error."
)
PATIENT = {"ContainerStartupHealthCheckTimeoutInSeconds": 600}
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


def test_every_instance_is_a_container_of_its_own_and_answers(cloud, sagemaker):
    cloud.serve("many", InitialInstanceCount=3)
    answered = Counter(cloud.invoke("many")["instance"] for _ in range(90))
    assert set(answered) == {"AllTraffic-1", "AllTraffic-2", "AllTraffic-3"}
    shown = sagemaker.describe_endpoint(EndpointName="many")["ProductionVariants"][0]
    assert (shown["CurrentInstanceCount"], shown["DesiredInstanceCount"]) == (3, 3)
    assert shown["DeployedImages"] == [{"SpecifiedImage": IMAGE}]
    cloud.destroy("many")
    assert wait_until_gone("many")


def test_least_outstanding_requests_go_past_a_busy_instance(cloud, tmp_path):
    cloud.serve("busy", InitialInstanceCount=2, RoutingConfig=BY_LOAD)
    answer = tmp_path / "answer"
    waiting = threading.Thread(target=cloud.invoke, args=("busy", f"until {answer}".encode()))
    waiting.start()
    try:
        until(lambda: any("asked b'until" in log.read_text() for log in logs(cloud, "busy")))
        assert len({cloud.invoke("busy")["instance"] for _ in range(20)}) == 1
        assert waiting.is_alive()
    finally:
        answer.touch()
        waiting.join()
    assert len({cloud.invoke("busy")["instance"] for _ in range(40)}) == 2
    cloud.destroy("busy")


def logs(cloud, endpoint):
    return sorted(cloud.state.glob(f"endpoints/*-{endpoint}-*/*/server.log"))


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


def test_an_endpoint_deleted_while_an_instance_is_replaced_leaves_no_process(
    cloud, sagemaker, tmp_path
):
    url = cloud.put_archive("leaving/model.tar.gz", "hi")
    environment = {"SERVER_MODE": "starts_once", "STARTED": str(tmp_path / "started")}
    cloud.deploy("leaving", endpoint_resources("leaving", url, environment=environment, **PATIENT))
    before = set(marked_processes("leaving"))
    os.kill(max(before), signal.SIGKILL)
    until(lambda: set(marked_processes("leaving")) - before)
    cloud.destroy("leaving")
    assert wait_until_gone("leaving")
    assert sagemaker.list_endpoints(NameContains="leaving")["Endpoints"] == []
    assert [path for path in cloud.state.glob("endpoints/*-leaving-*") if path.is_dir()] == []


def latest(load):
    """Which instances gave the newest answers."""
    return {answer["instance"] for answer in load.answers[-60:]}


def test_weights_and_counts_are_changed_without_a_failed_request(cloud, sagemaker):
    for letter in "ab":
        put_model(cloud, f"split-{letter}", letter)
    variants = [
        endpoint_config("split", letter)["ProductionVariants"][0] | {"VariantName": letter}
        for letter in "ab"
    ]
    variants[1] |= {"InitialVariantWeight": 0}
    sagemaker.create_endpoint_config(EndpointConfigName="split", ProductionVariants=variants)
    sagemaker.create_endpoint(EndpointName="split", EndpointConfigName="split")
    cloud.wait_for("split")
    assert {cloud.invoke("split")["greeting"] for _ in range(20)} == {"a"}
    assert cloud.invoke("split", TargetVariant="b")["greeting"] == "b"
    with steady_load(cloud, "split") as load:
        cloud.set_counts(
            "split",
            {"VariantName": "a", "DesiredWeight": 1, "DesiredInstanceCount": 3},
            {"VariantName": "b", "DesiredWeight": 3},
        )
        assert counts(cloud.wait_for("split")) == {"a": 3, "b": 1}
        load.forget_answers()
        until(lambda: len(load.answers) >= 400)
        share = sum(answer["greeting"] == "b" for answer in load.answers[:400])
        cloud.set_counts("split", {"VariantName": "a", "DesiredInstanceCount": 1})
        assert counts(cloud.wait_for("split")) == {"a": 1, "b": 1}
    assert load.failures == []
    assert 250 <= share <= 350
    with pytest.raises(ClientError, match="Could not find variant c in endpoint split"):
        cloud.invoke("split", TargetVariant="c")
    sagemaker.delete_endpoint(EndpointName="split")
    assert wait_until_gone("split")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ([{"VariantName": "other", "DesiredInstanceCount": 2}], 'Could not find variant "other"'),
        ([0], "only an asynchronous endpoint scales to zero"),
        (
            [{"VariantName": "AllTraffic", "DesiredWeight": -1}],
            "Member must have value greater than or equal to 0",
        ),
        ([1, 2], "must name each variant once, found AllTraffic, AllTraffic"),
    ],
)
def test_refuses_weights_and_counts(cloud, one, changes, message):
    with refusal(message):
        cloud.set_counts(one, *changes)


@pytest.fixture(scope="module")
def one(cloud):
    cloud.serve("one", InstanceType="ml.c7i.8xlarge")
    yield "one"
    cloud.destroy("one")


def test_scaling_out_without_capacity_goes_back_and_says_why(cloud, one, capacity):
    capacity(c7i_8xlarge=2)
    cloud.set_counts(one, 4)
    shown = cloud.wait_for(one)
    assert (shown["EndpointStatus"], counts(shown)) == ("InService", {"AllTraffic": 1})
    assert shown["ProductionVariants"][0]["DesiredInstanceCount"] == 1
    assert SHORT in shown["FailureReason"]


def test_an_update_keeps_the_counts_and_weights_that_its_request_retains(cloud, sagemaker):
    put_model(cloud, "kept-1", "first")
    for version in "123":
        config = endpoint_config("kept", "1", variant={"InitialInstanceCount": 1})
        sagemaker.create_endpoint_config(**config | {"EndpointConfigName": f"kept-{version}"})
    sagemaker.create_endpoint(EndpointName="kept", EndpointConfigName="kept-1")
    cloud.wait_for("kept")
    cloud.set_counts(
        "kept", {"VariantName": "AllTraffic", "DesiredInstanceCount": 2, "DesiredWeight": 7}
    )
    cloud.wait_for("kept")
    sagemaker.update_endpoint(
        EndpointName="kept", EndpointConfigName="kept-2", RetainAllVariantProperties=True
    )
    shown = cloud.wait_for("kept")["ProductionVariants"][0]
    assert (shown["CurrentInstanceCount"], shown["CurrentWeight"]) == (2, 7)
    sagemaker.update_endpoint(
        EndpointName="kept",
        EndpointConfigName="kept-3",
        RetainAllVariantProperties=True,
        ExcludeRetainedVariantProperties=[{"VariantPropertyType": "DesiredInstanceCount"}],
    )
    shown = cloud.wait_for("kept")["ProductionVariants"][0]
    assert (shown["CurrentInstanceCount"], shown["CurrentWeight"]) == (1, 7)
    sagemaker.update_endpoint(EndpointName="kept", EndpointConfigName="kept-1")
    shown = cloud.wait_for("kept")["ProductionVariants"][0]
    assert (shown["CurrentInstanceCount"], shown["CurrentWeight"]) == (1, 1)
    sagemaker.delete_endpoint(EndpointName="kept")
    assert wait_until_gone("kept")


def test_refuses_an_endpoint_without_capacity_and_rolls_its_stack_back(cloud, sagemaker, capacity):
    capacity(g5_xlarge=1)
    url = cloud.put_archive("short/model.tar.gz", "hi")
    status, reason = cloud.deploy(
        "short",
        endpoint_resources("short", url, InstanceType="ml.g5.xlarge", InitialInstanceCount=2),
    )
    assert status == "ROLLBACK_COMPLETE"
    assert SHORT in reason
    assert sagemaker.list_endpoints(NameContains="short")["Endpoints"] == []
    assert wait_until_gone("short")
    cloud.destroy("short")


def test_old_endpoint_answers_when_there_is_no_capacity_for_an_update(cloud, sagemaker, capacity):
    cloud.serve("tightly", "first", InstanceType="ml.g5.xlarge")
    capacity(g5_xlarge=1)
    with steady_load(cloud, "tightly") as load:
        newer = endpoint_resources(
            "tightly",
            cloud.put_archive("tightly/2.tar.gz", "second"),
            "2",
            InstanceType="ml.g5.xlarge",
        )
        status, reason = cloud.deploy("tightly", newer)
    assert status == "UPDATE_ROLLBACK_COMPLETE"
    assert SHORT in reason
    assert (load.failures, load.greetings()) == ([], {"first"})
    cloud.destroy("tightly")


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
