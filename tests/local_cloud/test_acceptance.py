"""A killed acceptance run: the next one is refused, and `--clean` leaves nothing in the account."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time

import pytest

from local_cloud import lifecycle
from tests.local_cloud.account import Account
from tests.local_cloud.repository_copy import copy_repository, roundhouse
from tests.local_cloud.tiny_session import wait_for_processes

pytestmark = pytest.mark.local_cloud

DEADLINE_SECONDS = 240.0
WORDS = ("acceptance", "--env", "local")


@pytest.fixture
def repository(tmp_path):
    copy = copy_repository(tmp_path, "models", "endpoints", "environments")
    yield copy
    lifecycle.stop(copy / "build" / "local")
    assert wait_for_processes(copy)


def call(repository, *words):
    return subprocess.run(
        roundhouse(repository, *WORDS, *words),
        cwd=repository,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )


def kill_at(repository, words):
    """Starts a run and kills it, as a lost machine does, once its output holds some words."""
    log = repository / "run.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            roundhouse(repository, *WORDS),
            cwd=repository,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while words not in log.read_text(errors="replace"):
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def holdings(account):
    """What of a run the account holds, by the services themselves."""
    stacks = account.client("cloudformation").list_stacks()["StackSummaries"]
    executions = [
        execution["status"]
        for machine in account.client("stepfunctions").list_state_machines()["stateMachines"]
        for execution in account.client("stepfunctions").list_executions(
            stateMachineArn=machine["stateMachineArn"], statusFilter="RUNNING"
        )["executions"]
    ]
    found = {
        "stacks": [
            stack["StackName"]
            for stack in stacks
            if stack["StackStatus"] != "DELETE_COMPLETE" and "acceptance" in stack["StackName"]
        ],
        "buckets": [
            bucket["Name"]
            for bucket in account.client("s3").list_buckets()["Buckets"]
            if "acceptance" in bucket["Name"]
        ],
        "keys": [
            alias["AliasName"]
            for alias in account.client("kms").list_aliases()["Aliases"]
            if "acceptance" in alias["AliasName"]
        ],
        "repositories": [
            repository["repositoryName"]
            for repository in account.client("ecr").describe_repositories()["repositories"]
            if "acceptance" in repository["repositoryName"]
        ],
        "executions": executions,
    }
    return {name: rows for name, rows in found.items() if rows}


def test_killed_run_refuses_the_next_one_and_is_cleaned(repository):
    kill_at(repository, "Building python")
    account = Account(lifecycle.find(repository / "build" / "local"), repository)
    try:
        assert set(holdings(account)) >= {"stacks", "buckets", "keys", "repositories"}
        record = json.loads((repository / "build/acceptance/local/cleanup.json").read_text())
        assert "stack roundhouse-acceptance-foundation" in record["created"]
        refused = call(repository)
        assert refused.returncode == 1
        assert "was interrupted" in refused.stderr and "--clean" in refused.stderr
        cleaned = call(repository, "--clean", "--format", "json")
        assert cleaned.returncode == 0, cleaned.stderr
        assert json.loads(cleaned.stdout)["deleted"]
        assert holdings(account) == {}
        assert not (repository / "build/acceptance/local/cleanup.json").exists()
        again = call(repository, "--clean", "--format", "json")
        assert json.loads(again.stdout) == {"deleted": []}
    finally:
        account.close()
