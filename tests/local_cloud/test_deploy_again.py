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
from tests.local_cloud.repository_copy import copy_repository, roundhouse
from tests.local_cloud.tiny_session import new_tiny_session, processes_of

pytestmark = pytest.mark.local_cloud

DEADLINE_SECONDS = 400.0
ENDPOINT, FOUNDATION, BUILDS = (
    "local-tiny",
    "roundhouse-local-foundation",
    "roundhouse-local-builds",
)


@pytest.fixture
def repository(tmp_path):
    """A repository of its own with its own local cloud, which is up, and a tree of one tiny model
    in `tree`.
    """
    copy_repository(tmp_path)
    (tmp_path / "environments").mkdir()
    new_tiny_session(tmp_path / "tree")
    subprocess.run(roundhouse(tmp_path, "up"), cwd=tmp_path, check=True, capture_output=True)
    yield tmp_path
    lifecycle.stop(tmp_path / "build" / "local")
    _kill(processes_of(tmp_path))


@pytest.fixture
def account(repository):
    state = repository / "build" / "local"
    account = Account(lifecycle.find(state), state)
    yield account
    account.close()


def _deploy(repository):
    with (repository / "deploy.log").open("wb") as log:
        command = roundhouse(
            repository, "deploy", "--env", "local", "--yes", "--root", str(repository / "tree")
        )
        return subprocess.Popen(
            command, cwd=repository, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )


def _log_text(repository):
    return (repository / "deploy.log").read_text(errors="replace")


def _kill(pids):
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def _cloud_pids(repository):
    """The local cloud and all that it started are not the desk's power: they go on."""
    address = lifecycle.find(repository / "build" / "local")
    return {pid for pid in processes_of(repository) if address.pid in _line(pid)}


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


def _killed_at(repository, words):
    """Starts a deploy and kills it, and every process it started, once it has said so much."""
    process = _deploy(repository)
    deadline = time.monotonic() + DEADLINE_SECONDS
    while words not in _log_text(repository):
        assert process.poll() is None and time.monotonic() < deadline, _log_text(repository)
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    _kill(set(processes_of(repository)) - _cloud_pids(repository))


def _stacks(account):
    """Status and time of creation of every stack."""
    pages = account.client("cloudformation").get_paginator("list_stacks").paginate()
    found = (stack for page in pages for stack in page["StackSummaries"])
    return {item["StackName"]: (item["StackStatus"], item["CreationTime"]) for item in found}


def _completes(repository):
    process = _deploy(repository)
    assert process.wait(DEADLINE_SECONDS) == 0, _log_text(repository)


def _answer(repository, verb, *words):
    """The document that a command prints for machines."""
    command = roundhouse(
        repository,
        verb,
        "--env",
        "local",
        "--root",
        str(repository / "tree"),
        "--format",
        "json",
        *words,
    )
    return json.loads(
        subprocess.run(command, cwd=repository, check=True, capture_output=True).stdout
    )


MOMENTS = (
    ("Deploying the foundation and the builds (cdk deploy) …", set()),
    ("Building tiny", {FOUNDATION, BUILDS}),
    ("Deploying (cdk deploy) …", {FOUNDATION, BUILDS}),
)
"""What a deploy says when it is killed, and the stacks that are done by then."""


def test_a_deploy_killed_at_each_moment_is_completed_by_the_next_and_nothing_is_done_twice(
    repository, account
):
    created = {}
    for moment, done_before in MOMENTS:
        _killed_at(repository, moment)
        assert "Done:" not in _log_text(repository)
        before = _stacks(account)
        assert done_before <= {
            name for name, (status, _) in before.items() if status == "CREATE_COMPLETE"
        }
        created = {name: before[name][1] for name in done_before} | created
    _completes(repository)
    assert "Done: " in _log_text(repository) and "Traceback" not in _log_text(repository)
    assert "No image is built in the local cloud" in _log_text(repository)
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
    assert {name: stacks[name][1] for name in created} == created
    answer = account.client("sagemaker").describe_endpoint(EndpointName=ENDPOINT)
    assert answer["EndpointStatus"] == "InService"
    assert {image["state"] for image in _answer(repository, "build", "--images")} == {
        "not built here"
    }
    assert _answer(repository, "prune", "--older-than", "0", "--dry-run")["found"] == []
