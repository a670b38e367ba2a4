"""`python -m engine_build` as a process: exit codes, streams, time."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys

import pytest

from tests.unit.engine_build.stand_ins import ROOT
from tests.unit.engine_build.tiny import write_tree

OFFLINE = {
    "ROUNDHOUSE_BENCHMARK_SECONDS": "0.1",
    "PIP_NO_INDEX": "1",
    "PIP_FIND_LINKS": "",
    "PYTHONPATH": str(ROOT),
}
NOWHERE = {
    "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
    "AWS_ACCESS_KEY_ID": "x",
    "AWS_SECRET_ACCESS_KEY": "x",
    "AWS_MAX_ATTEMPTS": "1",
}


@pytest.fixture
def root(tmp_path):
    return write_tree(tmp_path / "root")


def options(root, out, *more, environment="desk"):
    return ("--root", root, "--environment", environment, "--model", "tiny", "--out", out, *more)


def assert_refused(arguments, code, *words, **environment):
    """Run the command, and return its output."""
    command = [sys.executable, "-W", "error", "-m", "engine_build", *map(str, arguments)]
    ended = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **OFFLINE, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    last = ended.stderr.strip().splitlines()[-1]
    assert (ended.returncode, last[:8]) == (code, "FAILED: "), ended.stderr
    assert "Traceback" not in ended.stderr + ended.stdout
    assert [word for word in words if word not in last] == []
    return ended.stdout


def test_refuses_bad_arguments_with_code_1():
    assert_refused(("--mode", "x"), 1, "--environment")


def test_refuses_an_unknown_environment_with_code_1(root, tmp_path):
    assert_refused(options(root, tmp_path / "o", environment="dest"), 1, "dest", "desk")


def test_refuses_a_work_folder_that_cannot_be_used_with_code_1(root, tmp_path):
    (tmp_path / "file").write_text("")
    assert_refused(options(root, tmp_path / "file/out"), 1, "--out", "Not a directory")


def test_refuses_a_work_folder_in_use_with_code_1(root, tmp_path):
    handle = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        assert_refused(options(root, tmp_path), 1, "in use by another build")
    finally:
        os.close(handle)


def test_refuses_an_unreadable_package_with_code_5_and_says_where_the_log_is(root, tmp_path):
    log = tmp_path / "out/build.log"
    words = ("tiny-embedder==1.0 cannot be fetched", f"(log: {log})")
    output = assert_refused(options(root, tmp_path / "out", "--format", "json"), 5, *words)
    assert json.loads(output)["exit_code"] == 5
    assert "No matching distribution" in log.read_text()


def test_refuses_an_unreachable_bucket_with_code_6(root, tmp_path):
    arguments = options(root, tmp_path / "out", "--publish", "s3://bucket")
    assert_refused(arguments, 6, "s3://bucket/engines/", "cannot be reached", **NOWHERE)
