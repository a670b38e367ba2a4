"""Processes: their logs, their ends, and what they started themselves."""

from __future__ import annotations

import io
import os
import re
import select
import subprocess
import sys
from pathlib import Path

import pytest

from engine_build.log import Log
from engine_build.runner import Command, Ended, ProcessRunner


@pytest.fixture
def stream():
    return io.StringIO()


@pytest.fixture
def runner(stream, tmp_path):
    runner = ProcessRunner(Log(stream))
    runner.record(tmp_path / "reproduce.sh")
    return runner


def shell(script, **options):
    return Command(argv=("sh", "-c", script), **options)


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


def test_log_has_each_line_as_it_comes(runner, tmp_path):
    wait = f"until grep -q first {tmp_path}/logs/01-sh.log; do :; done"
    ended = runner.run(shell(f"echo first; {wait}; echo second", timeout_seconds=30))
    assert (ended.code, ended.output) == (0, "first\nsecond\n")


def test_terminal_shows_how_long_a_process_runs(tmp_path):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

        def write(self, text):
            if " seconds" in text:
                (tmp_path / "shown").touch()
            return super().write(text)

    stream = Terminal()
    until_shown = shell(f"until test -e {tmp_path}/shown; do :; done", timeout_seconds=30)
    assert ProcessRunner(Log(stream), tick_seconds=0.01).run(until_shown).code == 0
    assert re.search(r"sh, \d+ seconds", stream.getvalue())


def test_process_that_takes_too_long_ends_with_those_that_it_started(runner, tmp_path):
    os.mkfifo(tmp_path / "held")
    end = os.open(tmp_path / "held", os.O_RDONLY | os.O_NONBLOCK)
    held = os.open(tmp_path / "held", os.O_WRONLY)  # a slow machine ends it before it opens this
    ended = runner.run(shell(f"exec 3> {tmp_path}/held; sleep 1000 & wait", timeout_seconds=0.3))
    assert (ended.code, ended.errors) == (124, "still running after 0.3 seconds; stopped")
    os.close(held)
    assert select.select([end], [], [], 30)[0] and os.read(end, 1) == b""
    os.close(end)


@pytest.mark.parametrize("last", ["kill -KILL $$", "exit 3", "exec >&- 2>&-; exit 3"])
def test_session_ends_with_its_first_process_however_that_ended(runner, tmp_path, last):
    """One that it started would keep its streams open, and the builder waiting."""
    os.mkfifo(tmp_path / "held")
    end = os.open(tmp_path / "held", os.O_RDONLY | os.O_NONBLOCK)
    script = f"exec 3> {tmp_path}/held; echo said; sleep 1000 & {last}"
    ended = runner.run(shell(script, timeout_seconds=300))
    assert (ended.code, ended.output) == (-9 if "KILL" in last else 3, "said\n")
    assert select.select([end], [], [], 30)[0] and os.read(end, 1) == b""
    os.close(end)


BUILDER = """
import sys
from engine_build.log import Log
from engine_build.runner import Command, ProcessRunner
ProcessRunner(Log(sys.stderr)).run(Command(argv=("sh", "-c", sys.argv[1])))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="prctl(2) is Linux's")
def test_process_ends_with_a_builder_that_is_killed(tmp_path):
    os.mkfifo(tmp_path / "held")
    end = os.open(tmp_path / "held", os.O_RDONLY | os.O_NONBLOCK)
    script = f"exec 3> {tmp_path}/held; echo up >&3; exec sleep 60"
    root = Path(__file__).resolve().parents[3]
    with subprocess.Popen((sys.executable, "-c", BUILDER, script), cwd=root) as builder:
        assert select.select([end], [], [], 30)[0] and os.read(end, 9) == b"up\n"
        builder.kill()
    assert select.select([end], [], [], 30)[0] and os.read(end, 1) == b""
    os.close(end)


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


def test_finds_programs_along_path(runner):
    assert os.access(str(runner.find("sh")), os.X_OK)
    assert runner.find("no-such-program-here") is None
