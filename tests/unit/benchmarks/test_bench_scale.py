"""The benchmarks of many models: generated trees, stand-in servers, growth, commands."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.child import Usage
from benchmarks.context import Context
from benchmarks.scale.cloud import PROGRAM, archive, archived_entry
from benchmarks.scale.many_models import many_models
from benchmarks.servers.running_server import free_port
from benchmarks.synth import COUNTS, GROWTH_BAR, LOCAL, app_command, growth
from local_cloud.containers.archive import unpack_model
from onboarding.lock import lock_path
from onboarding.resolve import deployments
from onboarding.tree import read_tree
from roundhouse.deploy.verification import lock_fault
from roundhouse.paths import find_paths
from roundhouse.processes import Processes
from stacks.endpoint.template import endpoint_faults

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[3]
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
    many = many_models(ROOT, tmp_path / "tree", 12, environment=environment, changes=changes)
    tree = read_tree(many.root)
    assert tree.faults == () and list(tree.environments) == [environment]
    results = deployments(tree, environment)
    assert [result.name for result in results] == [f"model-{number:03d}" for number in range(1, 13)]
    assert [fault for result in results for fault in endpoint_faults(result)] == []
    assert len({target.engine_key for result in results for target in result.targets}) == 12


def test_generated_lock_is_as_long_as_a_real_one_and_true_of_its_archive(many, tmp_path):
    (deployment, *_) = deployments(read_tree(many.root), "local")
    (target,) = deployment.targets
    lock = lock_path(many.root / "build/local/locks", target.model.name)
    assert len(lock.read_text().splitlines()) > 250
    assert target.lock_entry == archived_entry(deployment, target)
    assert lock_fault(deployment, target, target.lock_entry) is None
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
    port = free_port()
    variables = {"ROUNDHOUSE_BIND_ADDRESS": "127.0.0.1", "SAGEMAKER_BIND_TO_PORT": str(port)}
    server = subprocess.Popen((sys.executable, "-I", "-S", str(PROGRAM)), env=variables)
    try:
        assert response(port, b"GET /ping HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 200 OK")
        assert b"serves nothing" in response(port, b"POST /invocations HTTP/1.1\r\n\r\n")
    finally:
        server.kill()
        server.wait()


def response(port, request):
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
                connection.sendall(request)
                return connection.recv(1000)
        except ConnectionRefusedError:
            assert time.monotonic() < deadline


@pytest.mark.parametrize(
    ("cost", "is_linear"), [(lambda n: n / 100, True), (lambda n: n**2 / 10_000, False)]
)
def test_growth_distinguishes_a_line_from_a_curve(cost, is_linear):
    value = growth({count: [usage(1 + cost(count)), usage(9)] for count in COUNTS})
    assert value == 1.0 if is_linear else not GROWTH_BAR.holds(value)


def usage(processor_seconds):
    return Usage(seconds=9, processor_seconds=processor_seconds, peak_mib=1, peak_sum_mb=1)


def test_application_runs_as_the_command_line_runs_it(tmp_path):
    context = Context(paths=find_paths(ROOT), run=Processes(), variables={"A": "b"})
    environment = app_command(context, Path("/tree"), tmp_path / "out", "one").environment
    assert environment["A"] == "b" and environment["CDK_VALIDATION"] == "false"
    for word in ('"env": "dev"', '"root": "/tree"', '"endpoint": "one"', "enablePartitionLiterals"):
        assert word in environment["CDK_CONTEXT_JSON"]
