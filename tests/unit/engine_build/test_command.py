"""The command, its settings, its folder, its log, and the processes that it runs."""

from __future__ import annotations

import io
import json
import os
import select
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from engine_build.errors import InputRefused
from engine_build.log import Log
from engine_build.runner import Command, Ended, Runner
from engine_build.workload import Settings, WorkFolder, settings
from tests.unit.engine_build.graphs import linear
from tests.unit.engine_build.stand_ins import run_command
from tests.unit.engine_build.tiny import write_tensors_tree


class Unread(io.StringIO):
    """A stream whose reader has gone."""

    def write(self, text):
        super().write("")
        raise BrokenPipeError(32, "Broken pipe")


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
        (("--candidate", "a"), "--candidate needs --publish; add it"),
        (("--key", "0a" * 10, "--networks-only"), "and --networks-only of an engine; leave"),
        *(
            (("--plan-from", text), "is no engine; allowed")
            for text in ("", "abc", "0" * 20 + ":1", "0" * 21)
        ),
    ],
)
def test_refuses_arguments_in_json_before_anything_is_made(more, words, root):
    code, stdout, stderr = run_command(root, *more)
    failure = json.loads(stdout.getvalue())
    assert (code, failure["status"], failure["exit_code"]) == (1, "failed", 1)
    assert words in failure["reason"] and "unforeseen" not in failure["reason"]
    assert f"FAILED: {failure['reason']}" in stderr.getvalue()
    assert "Traceback" not in stderr.getvalue() and not (root / "out/networks").exists()


def test_build_goes_on_when_nobody_reads_its_stderr_and_refuses_an_unread_stdout(root):
    code, stdout, _ = run_command(root, stderr=Unread())
    assert (code, json.loads(stdout.getvalue())["status"]) == (0, "built")
    assert "benchmark … " in (root / "out/build.log").read_text()
    code, _, stderr = run_command(root, stdout=Unread())
    assert (code, "Traceback" in stderr.getvalue()) == (1, False)
    assert "FAILED: stdout takes no result ([Errno 32] Broken pipe)" in stderr.getvalue()
    assert json.loads(run_command(root)[1].getvalue())["status"] == "known"


@pytest.mark.parametrize(
    ("environment", "values"),
    [
        ({"ROUNDHOUSE_SOURCE_COMMIT": "abc"}, {"source_commit": "abc"}),
        ({"ROUNDHOUSE_SOURCE_COMMIT": ""}, {}),
        ({"CODEBUILD_BUILD_IMAGE": "image"}, {"image": "image"}),
        ({"CODEBUILD_BUILD_IMAGE": "image", "ROUNDHOUSE_IMAGE": "own"}, {"image": "own"}),
        ({"ROUNDHOUSE_BENCHMARK_SECONDS": "2"}, {"benchmark_seconds": 2.0}),
        ({"_CUDA_COMPAT_STATUS": "CUDA Driver OK"}, {"forward_compatible": True}),
        ({"_CUDA_COMPAT_STATUS": "CUDA Driver UNAVAILABLE (cuInit(0) returned 803)"}, {}),
        ({"_CUDA_COMPAT_STATUS": ""}, {}),
        ({"ROUNDHOUSE_VLLM_PYTHON": sys.executable}, {"vllm_python": sys.executable}),
        (
            {"ROUNDHOUSE_VLLM_PYTHON": sys.executable, "ROUNDHOUSE_SPEED_ON_CPU": "true"},
            {"vllm_python": sys.executable, "speed_on_cpu": True},
        ),
    ],
)
def test_settings_come_from_the_environment(environment, values):
    assert settings(environment) == Settings(**values)


@pytest.mark.parametrize("seconds", ["soon", "nan", "inf", "-1"])
def test_refuses_seconds_that_are_no_number_or_never_end(seconds):
    words = f"ROUNDHOUSE_BENCHMARK_SECONDS is '{seconds}'; give a number of seconds, 0 or more"
    with pytest.raises(InputRefused, match=words):
        settings({"ROUNDHOUSE_BENCHMARK_SECONDS": seconds})


def test_refuses_an_interpreter_that_is_none():
    with pytest.raises(InputRefused, match="ROUNDHOUSE_VLLM_PYTHON is /none, which is no prog"):
        settings({"ROUNDHOUSE_VLLM_PYTHON": "/none"})


def test_what_a_killed_build_was_writing_goes_and_what_it_finished_stays(tmp_path):
    kept = [tmp_path / "engines/0123/model.tar.gz", tmp_path / ".part-time.txt"]
    half = [tmp_path / "engines/0123/.part-ab12", tmp_path / "scratch/networks/model.onnx"]
    for path in (*kept, *half):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    with WorkFolder(tmp_path):
        assert [path.is_file() for path in (*kept, *half)] == [True, True, False, False]


def test_refuses_a_folder_that_another_build_holds_and_leaves_its_files(tmp_path):
    half = tmp_path / "networks/0123/.part-ab12"
    with WorkFolder(tmp_path):
        half.parent.mkdir(parents=True)
        half.write_bytes(b"under way")
        with pytest.raises(InputRefused, match="is in use by another build"), WorkFolder(tmp_path):
            pass
        assert half.is_file()


def test_a_candidate_takes_over_nothing_of_an_earlier_build(tmp_path):
    with WorkFolder(tmp_path):
        left = tmp_path / "networks/0123/model.onnx"
        left.parent.mkdir(parents=True)
        left.write_bytes(b"of another tree")
    with WorkFolder(tmp_path, is_fresh=True):
        assert [path.name for path in tmp_path.iterdir()] == ["build.log"]


def test_refuses_to_build_a_candidate_among_files_of_no_build(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    refused = pytest.raises(InputRefused, match=r"holds mine\.txt and no log of a build")
    with refused, WorkFolder(tmp_path, is_fresh=True):
        pass
    assert (tmp_path / "mine.txt").read_text() == "mine"
    with WorkFolder(tmp_path):
        pass


@pytest.fixture
def stream():
    return io.StringIO()


@pytest.fixture
def runner(stream, tmp_path):
    runner = Runner(Log(stream))
    runner.record(tmp_path / "reproduce.sh")
    return runner


def shell(script, **options):
    return Command(argv=("sh", "-c", script), **options)


@pytest.fixture
def pipe(tmp_path):
    """The end of a pipe, `held`, that reads nothing once no process holds the other one."""
    os.mkfifo(tmp_path / "held")
    end = os.open(tmp_path / "held", os.O_RDONLY | os.O_NONBLOCK)
    yield end
    os.close(end)


def read(end):
    """What comes of a pipe within half a minute; nothing where it is closed."""
    assert select.select([end], [], [], 30)[0]
    return os.read(end, 9)


def test_command_is_printed_recorded_and_logged_and_its_output_kept_whole(runner, stream, tmp_path):
    (tmp_path / "logs/07-trtexec.log").write_text("of an earlier build")
    runner.record(tmp_path / "reproduce.sh")
    ended = runner.run(shell("echo out; echo err >&2; exit 3"))
    assert ended == Ended(code=3, output="out\n", errors="err\n")
    line = "sh -c 'echo out; echo err >&2; exit 3'\n"
    assert f"$ {line}" in stream.getvalue()
    assert (tmp_path / "reproduce.sh").read_text().endswith(line)
    runner.run(Command(argv=(sys.executable, "-m", "this")))
    assert sorted(path.name for path in (tmp_path / "logs").iterdir()) == [
        "01-sh.log",
        "02-this.log",
    ]
    assert sorted((tmp_path / "logs/01-sh.log").read_text().split()) == ["err", "out"]
    assert "Zen of Python" in (tmp_path / "logs/02-this.log").read_text()
    assert runner.run(shell(r"printf '\377ok'")).output == "\ufffdok"
    assert len(runner.run(shell("yes | head -c 3000000")).output) == 3_000_000
    absent = runner.run(Command(argv=("no-such-program-here",)))
    assert (absent.code, absent.errors) == (127, "cannot be started: No such file or directory")


def test_process_that_takes_too_long_ends_with_those_that_it_started(runner, pipe, tmp_path):
    own = os.open(tmp_path / "held", os.O_WRONLY)  # a slow machine ends it before it opens this
    ended = runner.run(shell(f"exec 3> {tmp_path}/held; sleep 1000 & wait", timeout_seconds=0.3))
    assert (ended.code, ended.errors) == (124, "still running after 0.3 seconds; stopped")
    os.close(own)
    assert read(pipe) == b""


@pytest.mark.parametrize("last", ["kill -KILL $$", "exit 3", "exec >&- 2>&-; exit 3"])
def test_session_ends_with_its_first_process_however_that_ended(runner, pipe, tmp_path, last):
    """One that it started would keep its streams open, and the builder waiting."""
    script = f"exec 3> {tmp_path}/held; echo said; sleep 1000 & {last}"
    ended = runner.run(shell(script, timeout_seconds=300))
    assert (ended.code, ended.output) == (-9 if "KILL" in last else 3, "said\n")
    assert read(pipe) == b""


BUILDER = """
import sys
from engine_build.log import Log
from engine_build.runner import Command, Runner
Runner(Log(sys.stderr)).run(Command(argv=("sh", "-c", sys.argv[1])))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="prctl(2) is Linux's")
def test_process_ends_with_a_builder_that_is_killed(pipe, tmp_path):
    script = f"exec 3> {tmp_path}/held; echo up >&3; exec sleep 60"
    root = Path(__file__).resolve().parents[3]
    with subprocess.Popen((sys.executable, "-c", BUILDER, script), cwd=root) as builder:
        assert read(pipe) == b"up\n"
        builder.kill()
    assert read(pipe) == b""


@pytest.mark.parametrize(
    ("script", "code", "how"),
    [
        ("kill -KILL $$", -9, "was killed by signal 9, most often for want of memory,"),
        ("kill -SEGV $$", -11, "was killed by signal 11"),
        ("exit 3", 3, "ended with code 3"),
        ("exec >&- 2>&-; sleep 0.05; exit 4", 4, "ended with code 4"),
    ],
)
def test_end_has_its_code_or_signal(runner, script, code, how):
    ended = runner.run(shell(script))
    assert (ended.code, ended.how) == (code, how)
