"""What the benchmarks of many models stand on.

Generated trees, stand-in servers, sampled memory.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks import synth
from benchmarks.child import Usage, measure_usage, process_trees, resident_bytes
from benchmarks.scale.application import Application
from benchmarks.scale.cloud import PROGRAM, archive, archived_entry
from benchmarks.scale.many_models import many_models
from local_cloud.containers.archive import unpack_model
from onboarding.lock import lock_path
from onboarding.resolve import deployments
from onboarding.tree import read_tree
from roundhouse.deploy.verification import lock_fault
from roundhouse.paths import find_paths
from roundhouse.processes import Command, Processes
from stacks.endpoint.template import endpoint_faults

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[3]
LOCAL = {"serving": {"server": "python"}, "endpoint": {"instance_type": "ml.c7i.large"}}
DEADLINE_SECONDS = 30


@pytest.fixture
def many(tmp_path):
    return many_models(
        ROOT, tmp_path / "tree", 3, environment="local", changes=LOCAL, built=archived_entry
    )


@pytest.mark.parametrize(("environment", "changes"), [("dev", {}), ("local", LOCAL)])
def test_generated_tree_has_no_fault_and_every_endpoint_can_be_deployed(
    tmp_path, environment, changes
):
    tree = read_tree(
        many_models(ROOT, tmp_path / "tree", 12, environment=environment, changes=changes).root
    )
    assert tree.faults == () and list(tree.environments) == [environment]
    found = deployments(tree, environment)
    assert [result.name for result in found] == [f"model-{number:03d}" for number in range(1, 13)]
    assert [fault for result in found for fault in endpoint_faults(result)] == []
    assert len({target.engine_key for result in found for target in result.targets}) == 12


def test_generated_lock_is_as_long_as_a_real_one_and_true_of_its_archive(many, tmp_path):
    (deployment, *_) = deployments(read_tree(many.root), "local")
    (target,) = deployment.targets
    assert (
        len(lock_path(many.root / "build/local/locks", target.model.name).read_text().splitlines())
        > 250
    )
    assert (
        target.lock_entry == archived_entry(deployment, target)
        and lock_fault(deployment, target, target.lock_entry) is None
    )
    unpack_model(archive(target), tmp_path / "model", "here")
    assert (tmp_path / "model" / "engine").read_text() == target.engine_key


def test_a_change_gives_one_model_another_engine_and_its_lock(many):
    before = {item.name: item for item in deployments(read_tree(many.root), "local")}
    many.change("model-002", {"accuracy": {"budget": {"worst": 0.94}}})
    after = {item.name: item for item in deployments(read_tree(many.root), "local")}
    assert [name for name in before if after[name] != before[name]] == ["model-002"]
    assert after["model-002"].targets[0].engine_key != before["model-002"].targets[0].engine_key
    assert after["model-002"].missing == ()


def test_stand_in_server_is_healthy_and_serves_nothing():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    text = {"ROUNDHOUSE_BIND_ADDRESS": "127.0.0.1", "SAGEMAKER_BIND_TO_PORT": str(port)}
    server = subprocess.Popen((sys.executable, "-I", "-S", str(PROGRAM)), env=text)
    try:
        assert request(port, b"GET /ping HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 200 OK")
        assert b"serves nothing" in request(port, b"POST /invocations HTTP/1.1\r\n\r\n")
    finally:
        server.kill()
        server.wait()


def request(port, request):
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
                connection.sendall(request)
                return connection.recv(1000)
        except ConnectionRefusedError:
            assert time.monotonic() < deadline


def test_memory_is_the_sum_of_a_process_and_all_that_it_started(tmp_path):
    child = f"{sys.executable} -c 'import time; held = bytearray(60 << 20); time.sleep(1.5)'"
    command = Command(argv=("sh", "-c", f"{child} & {child}; wait"), folder=ROOT)
    taken = measure_usage(command, tmp_path / "taken.json", Processes())
    assert taken.peak_mib < 100 and 126 < taken.peak_sum_mb < 250
    assert taken.processor_seconds <= 2 * taken.seconds


def test_processes_that_are_gone_have_no_memory():
    ended = subprocess.Popen((sys.executable, "-c", ""))
    ended.wait()
    assert resident_bytes(ended.pid) == 0
    assert resident_bytes(os.getpid()) > 1 << 20 and os.getpid() in process_trees([os.getpid()])


def test_growth_tells_a_line_from_a_curve():
    def grown(cost):
        return synth._growth({count: [usage(1 + cost(count)), usage(9)] for count in synth.COUNTS})

    assert grown(lambda count: count / 100) == 1.0
    assert grown(lambda count: count**2 / 10_000) > synth.LINEAR_BAR


def usage(processor_seconds):
    return Usage(code=0, seconds=9, processor_seconds=processor_seconds, peak_mib=1, peak_sum_mb=1)


def test_application_is_run_as_the_command_line_runs_it(tmp_path):
    application = Application(
        at=find_paths(ROOT), run=Processes(), variables={"A": "b"}, place=tmp_path
    )
    command = application.command(
        Path("/tree"), tmp_path / "out", environment="dev", endpoint="one"
    )
    assert command.environment is not None and command.environment["CDK_VALIDATION"] == "false"
    for word in ('"env": "dev"', '"root": "/tree"', '"endpoint": "one"', "enablePartitionLiterals"):
        assert word in command.environment["CDK_CONTEXT_JSON"]
