"""Deployments that go wrong, with everything real.

Stock cdk, CodeBuild's process, the served archive.

One after the other.
"""

from __future__ import annotations

import os
import signal
from dataclasses import replace

import pytest

from local_cloud import lifecycle
from local_cloud.address import is_alive
from onboarding.names import artifact_bucket
from roundhouse.deploy import cdk
from roundhouse.deploy.cdk import stack_artifacts
from roundhouse.errors import BuildFailedError, DeployFailedError
from roundhouse.processes import Processes
from roundhouse.session import cloud_folder
from roundhouse.status import state_of
from tests.local_cloud.account import until
from tests.local_cloud.synthesis import run_synthesis_here
from tests.local_cloud.tiny_session import (
    ALONE,
    Caller,
    deploy_all,
    lock_entry,
    processes_of,
    session_at,
    sick_engine,
    sound_network,
    vector,
    wait_for_processes,
    weighted_network,
)

pytestmark = pytest.mark.local_cloud


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    with session_at(tmp_path_factory.mktemp("session"), run=Processes()) as tiny:
        deploy_all(tiny.start())
        yield tiny


def test_the_tiny_tree_answers_and_a_second_deploy_changes_nothing(tiny, session):
    assert sum(number * number for number in vector(session)) == pytest.approx(1, abs=1e-5)
    done = deploy_all(session)
    assert done.built == ()
    assert done.deployed.changed == ()
    assert len(done.deployed.unchanged) >= 3


def test_synthesis_in_this_process_is_the_command_lines(session, tmp_path):
    """Other tests deploy what comes of it."""
    here = replace(session, run=run_synthesis_here, paths=replace(session.paths, build=tmp_path))
    first, second = (stack_artifacts(cdk.synthesise(item)) for item in (session, here))
    assert first.keys() == second.keys() and len(first) == 5
    for name, stack in first.items():
        assert (second[name].template, second[name].content) == (stack.template, stack.content)


def test_model_of_another_pull_request_brings_its_own_stack_and_touches_no_other(tiny, session):
    """Its lock is a file of its own too, so that both branches merge without a conflict."""
    lock, servers, stacks = tiny.lock.read_bytes(), _servers(tiny), _stacks(session)
    model = tiny.write_like("newcomer", ALONE, serving="{server: python}")
    try:
        done = deploy_all(session)
        assert [entry.manifest.model for entry in done.built] == ["newcomer"]
        # The environment's dashboard shows every endpoint.
        assert set(done.deployed.changed) == {"local/Endpoint-newcomer", "local/Observability"}
        assert {"local/Foundation", "local/Builds", "local/Endpoint-tiny"} <= set(
            done.deployed.unchanged
        )
        assert {
            name: changed
            for name, changed in _stacks(session).items()
            if name in stacks and "observ" not in name
        } == {name: changed for name, changed in stacks.items() if "observ" not in name}
        assert tiny.lock.read_bytes() == lock and tiny.lock.with_name("newcomer.lock.yaml").exists()
        assert servers <= _servers(tiny)
        assert {
            Caller(session.clients).invoke(f"local-{name}")["rows"] for name in ("tiny", "newcomer")
        } == {1}
    finally:
        model.unlink()
        formation = session.clients("cloudformation")
        formation.update_termination_protection(
            StackName="roundhouse-local-endpoint-newcomer", EnableTerminationProtection=False
        )
        formation.delete_stack(StackName="roundhouse-local-endpoint-newcomer")
        until(lambda: "roundhouse-local-endpoint-newcomer" not in _stacks(session))
        tiny.lock.with_name("newcomer.lock.yaml").unlink(missing_ok=True)
    deploy_all(session)


def _stacks(session):
    """When each stack was changed last."""
    pages = session.clients("cloudformation").get_paginator("describe_stacks").paginate()
    return {
        stack["StackName"]: stack.get("LastUpdatedTime", stack["CreationTime"])
        for page in pages
        for stack in page["Stacks"]
    }


def _servers(tiny):
    """Processes of the servers: the children of the local cloud's."""
    return set(processes_of(tiny.paths.tree))


def test_refuses_an_endpoint_that_does_not_serve_what_its_stack_deployed(tiny, session):
    """SageMaker put another endpoint config in its place, as after a rollback alarm."""
    sagemaker = session.clients("sagemaker")
    deployed = sagemaker.describe_endpoint(EndpointName="local-tiny")["EndpointConfigName"]
    config = sagemaker.describe_endpoint_config(EndpointConfigName=deployed)
    variants = config["ProductionVariants"]
    sagemaker.create_endpoint_config(EndpointConfigName="older", ProductionVariants=variants)
    try:
        _serve(sagemaker, "older")
        (live,) = state_of(tiny.paths, session.report, "local").live
        assert live.config == "older"
        with pytest.raises(DeployFailedError, match=f"config older, not {deployed}"):
            deploy_all(session)
    finally:
        _serve(sagemaker, deployed)
    (live,) = state_of(tiny.paths, session.report, "local").live
    assert live.config == deployed and live.variants[0].instances == 1
    assert deploy_all(session).deployed.changed == ()


def _serve(sagemaker, config):
    """Put an endpoint config behind the endpoint, and wait until it serves."""
    sagemaker.update_endpoint(EndpointName="local-tiny", EndpointConfigName=config)
    until(
        lambda: (
            sagemaker.describe_endpoint(EndpointName="local-tiny")["EndpointStatus"] == "InService"
        )
    )


def test_refuses_an_engine_outside_its_budget_and_the_old_endpoint_answers(tiny, session):
    lock, answer = tiny.lock.read_bytes(), vector(session)
    tiny.write_model(weighted_network(), precision="int8", mean=1.0)
    try:
        with pytest.raises(
            BuildFailedError,
            match=r"the closest, int8, has mean cosine .*wanted mean 1.*Log: .*build\.log",
        ):
            deploy_all(session)
    finally:
        tiny.write_model(sound_network())
    assert tiny.lock.read_bytes() == lock
    assert vector(session) == answer


def test_refuses_a_lock_whose_archive_is_gone_and_the_demo_rebuilds_it(tiny, session):
    entry = lock_entry(tiny)
    session.clients("s3").delete_object(
        Bucket=artifact_bucket(session.environment), Key=entry.archive.path
    )
    session.clients("s3").delete_object(
        Bucket=artifact_bucket(session.environment),
        Key=entry.archive.path.replace("model.tar.gz", "lock-entry.json"),
    )
    with pytest.raises(
        DeployFailedError, match="`roundhouse build --env local --model tiny` builds it again"
    ):
        deploy_all(session)
    assert len(deploy_all(session, rebuild_gone=True).built) == 1
    assert vector(session)


def test_a_server_that_never_gets_healthy_is_rolled_back_and_leaves_no_process(tiny, session):
    answer, before = vector(session), processes_of(tiny.paths.tree)
    refused = pytest.raises(
        DeployFailedError, match=r"did not pass the ping health check.*Refused.*Log: .*\.log"
    )
    with sick_engine(session, tiny, load_seconds=9.0), refused:
        deploy_all(session)
    assert vector(session) == answer
    assert wait_for_processes(tiny.paths.tree, but=before) and set(before) <= set(
        processes_of(tiny.paths.tree)
    )


def test_a_killed_cloud_is_replaced_by_the_next_deploy(tiny, session):
    address = lifecycle.find(cloud_folder(tiny.paths))
    os.kill(address.pid, signal.SIGKILL)
    # A signal is sent, not obeyed, when kill returns.
    until(lambda: not is_alive(address))
    done = deploy_all(tiny.start(), rebuild_gone=True)
    assert len(done.built) == 1
    assert vector(tiny.start())
