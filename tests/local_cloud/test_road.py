"""The road's bad days, with everything real: stock cdk, CodeBuild's process, the served archive.

One after the other.
"""

from __future__ import annotations

import os
import signal

import pytest

from local_cloud import lifecycle
from local_cloud.address import is_alive
from onboarding.names import artifact_bucket
from roundhouse.errors import BuildFailed, DeployFailed
from roundhouse.road import cloud_state
from tests.local_cloud.account import until
from tests.local_cloud.tiny_road import (
    ALONE,
    Caller,
    ended,
    lock_entry,
    processes_of,
    publish,
    published,
    road_at,
    sick_engine,
    sound_network,
    vector,
    walk,
    weighted_network,
)

pytestmark = pytest.mark.local_cloud


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    with road_at(tmp_path_factory.mktemp("road")) as tiny:
        walk(tiny.start())
        yield tiny


@pytest.fixture
def road(tiny):
    return tiny.start()


def test_the_tiny_road_answers_and_a_second_walk_changes_nothing(tiny, road):
    assert sum(number * number for number in vector(road)) == pytest.approx(1, abs=1e-5)
    done = walk(road)
    assert done.built == ()
    assert done.deployed.changed == ()
    assert len(done.deployed.unchanged) >= 3


def test_model_of_another_pull_request_brings_its_own_stack_and_touches_no_other(tiny, road):
    """Its lock is a file of its own too, so that both branches merge without a conflict."""
    lock, servers, stacks = tiny.lock.read_bytes(), _servers(tiny), _stacks(road)
    model = tiny.write_like("newcomer", ALONE, serving="{server: python}")
    try:
        done = walk(road)
        assert [entry.manifest.model for entry in done.built] == ["newcomer"]
        # The environment's dashboard shows every endpoint.
        assert set(done.deployed.changed) == {"local/Endpoint-newcomer", "local/Observability"}
        assert {"local/Foundation", "local/Builds", "local/Endpoint-tiny"} <= set(
            done.deployed.unchanged
        )
        assert {
            name: each
            for name, each in _stacks(road).items()
            if name in stacks and "observ" not in name
        } == {name: each for name, each in stacks.items() if "observ" not in name}
        assert tiny.lock.read_bytes() == lock and tiny.lock.with_name("newcomer.lock.yaml").exists()
        assert servers <= _servers(tiny)
        assert {Caller(road).invoke(f"local-{name}")["rows"] for name in ("tiny", "newcomer")} == {
            1
        }
    finally:
        model.unlink()
        road.clients("cloudformation").delete_stack(StackName="roundhouse-local-endpoint-newcomer")
        until(lambda: None if "roundhouse-local-endpoint-newcomer" in _stacks(road) else True)
        tiny.lock.with_name("newcomer.lock.yaml").unlink(missing_ok=True)
    walk(road)


def _stacks(road):
    """When each stack was changed last."""
    pages = road.clients("cloudformation").get_paginator("describe_stacks").paginate()
    return {
        each["StackName"]: each.get("LastUpdatedTime", each["CreationTime"])
        for page in pages
        for each in page["Stacks"]
    }


def _servers(tiny):
    """Processes of the servers: the children of the local cloud's."""
    return set(processes_of(tiny.places.tree))


def test_refuses_a_corrupt_network_and_the_old_endpoint_answers(tiny, road):
    lock, answer = tiny.lock.read_bytes(), vector(road)
    tiny.write_model(sound_network()[:-40])
    try:
        with pytest.raises(BuildFailed, match=r"no valid ONNX file.*Log: .*build\.log"):
            walk(road)
    finally:
        tiny.write_model(sound_network())
    assert tiny.lock.read_bytes() == lock
    assert vector(road) == answer


def test_refuses_an_engine_outside_its_budget_and_the_old_endpoint_answers(tiny, road):
    lock, answer = tiny.lock.read_bytes(), vector(road)
    tiny.write_model(weighted_network(), precision="int8", mean=1.0)
    try:
        with pytest.raises(
            BuildFailed,
            match=r"the closest, int8, has mean cosine .*wanted mean 1.*Log: .*build\.log",
        ):
            walk(road)
    finally:
        tiny.write_model(sound_network())
    assert tiny.lock.read_bytes() == lock
    assert vector(road) == answer


def test_refuses_a_tampered_archive_before_deploying(tiny, road):
    entry = lock_entry(tiny)
    data = published(road, entry)
    publish(road, entry, data + b"\0")
    try:
        with pytest.raises(DeployFailed, match="do not deploy it"):
            walk(road)
    finally:
        publish(road, entry, data)
    assert vector(road)


def test_refuses_a_lock_whose_archive_is_gone_and_the_demo_rebuilds_it(tiny, road):
    entry = lock_entry(tiny)
    road.clients("s3").delete_object(
        Bucket=artifact_bucket(road.environment), Key=entry.archive.path
    )
    road.clients("s3").delete_object(
        Bucket=artifact_bucket(road.environment),
        Key=entry.archive.path.replace("model.tar.gz", "lock-entry.json"),
    )
    with pytest.raises(
        DeployFailed, match="`roundhouse build --env local --model tiny` builds it again"
    ):
        walk(road)
    assert len(walk(road, rebuild_gone=True).built) == 1
    assert vector(road)


def test_a_server_that_never_gets_healthy_is_rolled_back_and_leaves_no_process(tiny, road):
    answer, before = vector(road), processes_of(tiny.places.tree)
    refused = pytest.raises(
        DeployFailed, match=r"did not pass the ping health check.*Refused.*Log: .*\.log"
    )
    with sick_engine(road, tiny, load_seconds=9.0), refused:
        walk(road)
    assert vector(road) == answer
    assert ended(tiny.places.tree, but=before) and set(before) <= set(
        processes_of(tiny.places.tree)
    )
    walk(road)


def test_a_killed_cloud_is_replaced_by_the_next_walk(tiny, road):
    address = lifecycle.find(cloud_state(tiny.places))
    os.kill(address.pid, signal.SIGKILL)
    # A signal is sent, not obeyed, when kill returns.
    until(lambda: None if is_alive(address) else True)
    done = walk(tiny.start(), rebuild_gone=True)
    assert len(done.built) == 1
    assert vector(tiny.start())
