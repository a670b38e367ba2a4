"""`python -m engine_build`: arguments, exit codes, and streams that nobody reads."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys

import numpy as np
import pytest

from engine_build.__main__ import main
from tests.unit.engine_build.graphs import linear
from tests.unit.engine_build.stand_ins import ROOT
from tests.unit.engine_build.tiny import write_tree
from tests.unit.engine_build.trees import write_tensors_tree

OFFLINE = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "", "PYTHONPATH": str(ROOT)}
NOWHERE = {
    "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
    "AWS_ACCESS_KEY_ID": "x",
    "AWS_SECRET_ACCESS_KEY": "x",
    "AWS_MAX_ATTEMPTS": "1",
}


class Unread(io.StringIO):
    """A stream whose reader has gone."""

    def write(self, text):
        super().write("")
        raise BrokenPipeError(32, "Broken pipe")


def build(root, *more, environment="desk", stdout=None, stderr=None):
    """Exit code and the two streams of a build in this process."""
    out, err = (io.StringIO() if stream is None else stream for stream in (stdout, stderr))
    options = ["--root", root, "--environment", environment, "--model", "tiny", "--format", "json"]
    options += ["--out", root / "out", *more]
    variables = {"ROUNDHOUSE_BENCHMARK_SECONDS": "0.02"}
    return main([str(option) for option in options], variables, out, err), out, err


@pytest.fixture
def root(tmp_path):
    rows = np.random.default_rng(0).standard_normal((120, 4)).astype(np.float32)
    network = linear(tmp_path / "model.onnx")
    return write_tensors_tree(tmp_path / "root", network, {"validation": {"x": rows}})


NO_STORE = "is no store; allowed: s3://BUCKET, or a folder's path."


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--out", ""), "argument --out: it is empty"),
        (("--out", f"{__file__}/out"), "Not a directory"),
        (("--publish", ""), "argument --publish: it"),
        (("--compute-capability", ""), "--compute-capability: it is empty"),
        (("--environment", "dest"), "desk"),
        (("--frmat", "x"), "--frmat"),
        (("extra",), "extra"),
        (("--format=json", "--frmat"), "--frmat"),
        (("--publish", "s3://"), f"--publish s3:// {NO_STORE}"),
        (("--publish", "s3://a b"), f"--publish s3://a b {NO_STORE}"),
        (("--publish", "s3://bucket/folder"), f"--publish s3://bucket/folder {NO_STORE}"),
        (("--publish", __file__), "test_command.py is no folder"),
        *(
            (("--plan-from", text), "is no engine; allowed")
            for text in ("", "abc", "0" * 20 + ":1", "0" * 21)
        ),
    ],
)
def test_refuses_arguments_in_json_before_anything_is_made(more, words, root):
    code, stdout, stderr = build(root, *more)
    failure = json.loads(stdout.getvalue())
    assert (code, failure["status"], failure["exit_code"]) == (1, "failed", 1)
    assert words in failure["reason"] and "unforeseen" not in failure["reason"]
    assert f"FAILED: {failure['reason']}" in stderr.getvalue()
    assert "Traceback" not in stderr.getvalue() and not (root / "out/networks").exists()


def test_refuses_a_command_line_without_what_it_needs():
    stderr = io.StringIO()
    assert main(["--mode", "x"], {}, io.StringIO(), stderr) == 1
    assert "--environment, --model, --out" in stderr.getvalue()


def test_build_goes_on_when_nobody_reads_its_stderr_and_refuses_an_unread_stdout(root):
    code, stdout, _ = build(root, stderr=Unread())
    assert (code, json.loads(stdout.getvalue())["status"]) == (0, "built")
    assert "benchmark … " in (root / "out/build.log").read_text()
    code, _, stderr = build(root, stdout=Unread())
    assert (code, "Traceback" in stderr.getvalue()) == (1, False)
    assert "FAILED: stdout takes no result ([Errno 32] Broken pipe)" in stderr.getvalue()
    assert json.loads(build(root)[1].getvalue())["status"] == "known"


@pytest.mark.parametrize(
    ("more", "code", "words"),
    [
        ((), 5, "tiny-embedder==1.0 cannot be fetched"),
        (("--publish", "s3://bucket"), 6, "s3://bucket/engines/"),
    ],
)
def test_refuses_unreachable_places_as_a_process(more, code, words, tmp_path):
    root, out = write_tree(tmp_path / "root"), tmp_path / "out"
    options = ("--root", root, "--environment", "desk", "--model", "tiny", "--out", out, *more)
    command = [sys.executable, "-W", "error", "-m", "engine_build", "--format", "json"]
    ended = subprocess.run(
        [*command, *map(str, options)],
        cwd=ROOT,
        env={**os.environ, **OFFLINE, **NOWHERE},
        capture_output=True,
        text=True,
        timeout=120,
    )
    last = ended.stderr.strip().splitlines()[-1]
    assert (ended.returncode, last[:8]) == (code, "FAILED: "), ended.stderr
    assert json.loads(ended.stdout)["exit_code"] == code
    assert "Traceback" not in ended.stderr + ended.stdout
    assert words in last and f"(log: {out}/build.log)" in last
