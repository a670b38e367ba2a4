"""`python -m engine_build` as a process: exit codes, streams, time."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys

from tests.unit.engine_build.stand_ins import ROOT
from tests.unit.engine_build.tiny import write_tree


def engine_build(*arguments, **environment):
    offline = {
        "ROUNDHOUSE_BENCHMARK_SECONDS": "0.1",
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": "",
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, "-W", "error", "-m", "engine_build", *map(str, arguments)]
    return subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **offline, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


def arguments(root, out, *more, model="tiny"):
    return ("--root", root, "--environment", "desk", "--model", model, "--out", out, *more)


def assert_one_sentence(ended, code, *words):
    last = ended.stderr.strip().splitlines()[-1]
    assert (ended.returncode, last[:8]) == (code, "FAILED: "), ended.stderr
    assert "Traceback" not in ended.stderr + ended.stdout
    for word in words:
        assert word in last


def test_refuses_bad_arguments_with_code_1():
    assert_one_sentence(engine_build("--mode", "x"), 1, "--environment")


def test_refuses_an_unknown_environment_with_code_1(tmp_path):
    root = write_tree(tmp_path / "root")
    assert_one_sentence(
        engine_build(
            "--root", root, "--environment", "dest", "--model", "tiny", "--out", tmp_path / "o"
        ),
        1,
        "dest",
        "desk",
    )


def test_refuses_a_work_folder_that_cannot_be_used_with_code_1(tmp_path):
    root = write_tree(tmp_path / "root")
    (tmp_path / "file").write_text("")
    assert_one_sentence(
        engine_build(*arguments(root, tmp_path / "file/out")), 1, "--out", "Not a directory"
    )


def test_refuses_a_work_folder_in_use_with_code_1(tmp_path):
    root = write_tree(tmp_path / "root")
    handle = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        assert_one_sentence(engine_build(*arguments(root, tmp_path)), 1, "in use by another build")
    finally:
        os.close(handle)


def test_refuses_an_unreadable_package_with_code_5_and_says_where_the_log_is(tmp_path):
    root = write_tree(tmp_path / "root")
    ended = engine_build(*arguments(root, tmp_path / "out", "--format", "json"))
    assert_one_sentence(
        ended, 5, "tiny-embedder==1.0 cannot be fetched", f"(log: {tmp_path}/out/build.log)"
    )
    assert json.loads(ended.stdout)["exit_code"] == 5
    assert "No matching distribution" in (tmp_path / "out/build.log").read_text()


def test_refuses_an_unreachable_bucket_with_code_6(tmp_path):
    root = write_tree(tmp_path / "root")
    nowhere = {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
        "AWS_MAX_ATTEMPTS": "1",
    }
    ended = engine_build(*arguments(root, tmp_path / "out", "--publish", "s3://bucket"), **nowhere)
    assert_one_sentence(ended, 6, "s3://bucket/engines/", "cannot be reached")
