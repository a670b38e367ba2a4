"""A deploy that is killed between its stacks.

Nothing is half done for good, and the same command again completes it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from local_cloud import lifecycle
from tests.local_cloud.account import Account
from tests.local_cloud.desk import copy_repository, roundhouse
from tests.local_cloud.tiny_session import new_tiny_session, processes_of

pytestmark = pytest.mark.local_cloud

DEADLINE_SECONDS = 400.0
ENDPOINT, FOUNDATION, BUILDS = (
    "local-tiny",
    "roundhouse-local-foundation",
    "roundhouse-local-builds",
)


@pytest.fixture
def desk(tmp_path):
    """A repository of its own with its own local cloud, which is up, and a tree of one tiny model
    in `tree`.
    """
    copy_repository(tmp_path)
    new_tiny_session(tmp_path / "tree")
    subprocess.run(roundhouse(tmp_path, "up"), cwd=tmp_path, check=True, capture_output=True)
    yield tmp_path
    lifecycle.stop(tmp_path / "build" / "local")
    _kill(processes_of(tmp_path))


@pytest.fixture
def account(desk):
    state = desk / "build" / "local"
    account = Account(lifecycle.find(state), state)
    yield account
    account.close()


def _deploy(desk):
    with (desk / "deploy.log").open("wb") as log:
        command = roundhouse(
            desk, "deploy", "--env", "local", "--yes", "--root", str(desk / "tree")
        )
        return subprocess.Popen(
            command, cwd=desk, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )


def _said(desk):
    return (desk / "deploy.log").read_text(errors="replace")


def _kill(pids):
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def _cloud_pids(desk):
    """The local cloud and all that it started are not the desk's power: they go on."""
    address = lifecycle.find(desk / "build" / "local")
    return {pid for pid in processes_of(desk) if address.pid in _line(pid)}


def _line(pid):
    """A process and those that it comes from, the nearest first."""
    found = [pid]
    while found[-1] > 1:
        found.append(_parent(found[-1]))
    return found


def _parent(pid):
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return int(fields[1])


def _killed_at(desk, words):
    """Starts a deploy and kills it, and every process it started, once it has said so much."""
    process = _deploy(desk)
    deadline = time.monotonic() + DEADLINE_SECONDS
    while words not in _said(desk):
        assert process.poll() is None and time.monotonic() < deadline, _said(desk)
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    _kill(set(processes_of(desk)) - _cloud_pids(desk))


def _stacks(account):
    """Status and time of creation of every stack."""
    pages = account.client("cloudformation").get_paginator("list_stacks").paginate()
    found = (stack for page in pages for stack in page["StackSummaries"])
    return {item["StackName"]: (item["StackStatus"], item["CreationTime"]) for item in found}


def _completes(desk):
    process = _deploy(desk)
    assert process.wait(DEADLINE_SECONDS) == 0, _said(desk)


def _answer(desk, verb, *words):
    """The document that a command prints for machines."""
    command = roundhouse(
        desk, verb, "--env", "local", "--root", str(desk / "tree"), "--format", "json", *words
    )
    return json.loads(subprocess.run(command, cwd=desk, check=True, capture_output=True).stdout)


@pytest.mark.parametrize(
    ("moment", "done_before"),
    [
        ("Deploying the foundation and the builds (cdk deploy) …", set()),
        ("Building tiny", {FOUNDATION, BUILDS}),
        ("Deploying (cdk deploy) …", {FOUNDATION, BUILDS}),
    ],
)
def test_a_killed_deploy_is_completed_by_the_next_and_nothing_is_done_twice(
    desk, account, moment, done_before
):
    _killed_at(desk, moment)
    assert "Done:" not in _said(desk)
    before = _stacks(account)
    assert done_before <= {
        name for name, (status, _) in before.items() if status == "CREATE_COMPLETE"
    }
    _completes(desk)
    assert "Done: " in _said(desk) and "Traceback" not in _said(desk)
    assert "No image is built in the local cloud" in _said(desk)
    stacks = {
        name: stack
        for name, stack in _stacks(account).items()
        if name.startswith("roundhouse-local-")
    }
    assert {FOUNDATION, BUILDS, "roundhouse-local-endpoint-tiny"} <= set(stacks)
    assert [
        status
        for status, _ in stacks.values()
        if status not in ("CREATE_COMPLETE", "UPDATE_COMPLETE")
    ] == []
    assert {name: stacks[name][1] for name in done_before} == {
        name: before[name][1] for name in done_before
    }
    answer = account.client("sagemaker").describe_endpoint(EndpointName=ENDPOINT)
    assert answer["EndpointStatus"] == "InService"
    assert {image["state"] for image in _answer(desk, "images")} == {"not built here"}
    assert _answer(desk, "prune", "--older-than", "0", "--dry-run")["found"] == []
