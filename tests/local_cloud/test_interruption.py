"""Ctrl-C on the demo, as a terminal sends it: nothing is left, and the next run recovers."""

from __future__ import annotations

import os
import signal
import subprocess
import time

import pytest

from local_cloud import lifecycle
from tests.local_cloud.repository_copy import copy_repository, roundhouse
from tests.local_cloud.tiny_session import wait_for_processes

pytestmark = pytest.mark.local_cloud

DEADLINE_SECONDS = 300.0


@pytest.fixture
def repository(tmp_path):
    return copy_repository(tmp_path, "models", "endpoints", "environments")


def started_demo(repository):
    with (repository / "demo.log").open("wb") as log:
        return subprocess.Popen(
            roundhouse(repository, "demo"),
            cwd=repository,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def wait_for(condition, process, repository):
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert process.poll() is None and time.monotonic() < deadline, (
            repository / "demo.log"
        ).read_text()
        time.sleep(0.05)


def log_holds(repository, words):
    return lambda: words in (repository / "demo.log").read_text(errors="replace")


@pytest.mark.parametrize(
    "moment",
    ["Local cloud", "cdk bootstrap", "Deploying the foundation", "Building sentence-embedder"],
)
def test_interrupted_demo_leaves_no_process_and_no_state(repository, moment):
    process = started_demo(repository)
    try:
        wait_for(log_holds(repository, moment), process, repository)
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(DEADLINE_SECONDS) == 130
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        state = repository / "build" / "local"
        left = lifecycle.find(state)
        lifecycle.stop(state)
    assert left is None
    assert wait_for_processes(repository)
    assert "Traceback" not in (repository / "demo.log").read_text()
