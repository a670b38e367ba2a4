"""Arguments and streams of the real commands, in this process: empty, unknown, read by nobody."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest

from engine_build.__main__ import main
from tests.unit.engine_build.graphs import linear
from tests.unit.engine_build.trees import write_tensors_tree


class Unread(io.StringIO):
    """A stream whose reader has gone."""

    def write(self, text):
        super().write("")
        raise BrokenPipeError(32, "Broken pipe")


def build(root, *more, stdout=None, stderr=None):
    """Exit code and the two streams of a build."""
    out, err = (io.StringIO() if stream is None else stream for stream in (stdout, stderr))
    options = ["--root", root, "--environment", "desk", "--model", "tiny", "--out", root / "out"]
    options += ["--format", "json", *more]
    environment = {"ROUNDHOUSE_BENCHMARK_SECONDS": "0.02"}
    return main([str(option) for option in options], environment, out, err), out, err


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
        (("--publish", ""), "argument --publish: it"),
        (("--frmat", "x"), "--frmat"),
        (("extra",), "extra"),
        (("--format=json", "--frmat"), "--frmat"),
        (("--publish", "s3://"), f"--publish s3:// {NO_STORE}"),
        (("--publish", "s3://a b"), f"--publish s3://a b {NO_STORE}"),
        (("--publish", "s3://bucket/folder"), f"--publish s3://bucket/folder {NO_STORE}"),
        (("--publish", __file__), "test_careless.py is no folder"),
    ],
)
def test_refuses_arguments_in_json_before_anything_is_made(more, words, root):
    code, stdout, stderr = build(root, *more)
    failure = json.loads(stdout.getvalue())
    assert (code, failure["status"], failure["exit_code"]) == (1, "failed", 1)
    assert words in failure["reason"] and "unforeseen" not in failure["reason"]
    assert f"FAILED: {failure['reason']}" in stderr.getvalue()
    assert "Traceback" not in stderr.getvalue() and not (root / "out/networks").exists()


def test_build_goes_on_when_nobody_reads_its_stderr(root):
    code, stdout, _ = build(root, stderr=Unread())
    assert (code, json.loads(stdout.getvalue())["status"]) == (0, "built")
    assert "benchmark … " in (root / "out/build.log").read_text()


def test_refuses_a_stdout_that_nobody_reads_in_a_sentence(root):
    code, _, stderr = build(root, stdout=Unread())
    assert (code, "Traceback" in stderr.getvalue()) == (1, False)
    assert "FAILED: stdout takes no result ([Errno 32] Broken pipe)" in stderr.getvalue()
    assert json.loads(build(root)[1].getvalue())["status"] == "known"
