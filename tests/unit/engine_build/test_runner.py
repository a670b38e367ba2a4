"""Processes: their logs, their ends, and what they started themselves."""

from __future__ import annotations

import io
import os
import select
import sys

from engine_build.log import Log
from engine_build.runner import Command, ProcessRunner


def runner(tmp_path, **options):
    stream = io.StringIO()
    made = ProcessRunner(Log(stream), **options)
    made.record(tmp_path / "reproduce.sh")
    return made, stream


def shell(script, **options):
    return Command(argv=("sh", "-c", script), **options)


def test_each_process_leaves_a_log_of_both_its_streams(tmp_path):
    made, _ = runner(tmp_path)
    made.run(shell("echo out; echo err >&2"))
    made.run(Command(argv=(sys.executable, "-m", "this")))
    assert sorted((tmp_path / "logs/01-sh.log").read_text().split()) == ["err", "out"]
    assert "Zen of Python" in (tmp_path / "logs/02-this.log").read_text()


def test_logs_of_an_earlier_build_go(tmp_path):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/07-trtexec.log").write_text("old")
    runner(tmp_path)
    assert list((tmp_path / "logs").iterdir()) == []


def test_log_has_each_line_as_it_comes(tmp_path):
    made, _ = runner(tmp_path)
    log = tmp_path / "logs/01-sh.log"
    ended = made.run(
        shell(f"echo first; until grep -q first {log}; do :; done; echo second", timeout_seconds=30)
    )
    assert (ended.code, ended.output) == (0, "first\nsecond\n")


def test_terminal_shows_how_long_a_process_runs(tmp_path):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    stream = Terminal()
    ProcessRunner(Log(stream), tick_seconds=0.01).run(shell("sleep 0.1"))
    assert "sh, 0 seconds" in stream.getvalue()


def test_output_that_is_no_text_is_kept_readable(tmp_path):
    ended = runner(tmp_path)[0].run(shell(r"printf '\377ok'"))
    assert ended.output == "\ufffdok"


def test_large_output_is_kept_whole(tmp_path):
    ended = runner(tmp_path)[0].run(shell("yes | head -c 3000000"))
    assert len(ended.output) == 3_000_000


def test_process_that_takes_too_long_ends_with_those_that_it_started(tmp_path):
    made, _ = runner(tmp_path)
    os.mkfifo(tmp_path / "held")
    end = os.open(tmp_path / "held", os.O_RDONLY | os.O_NONBLOCK)
    ended = made.run(shell(f"exec 3> {tmp_path}/held; sleep 1000 & wait", timeout_seconds=0.3))
    assert ended.code == 124 and ended.errors.startswith("still running after 0.3 seconds")
    assert select.select([end], [], [], 30)[0] and os.read(end, 1) == b""
    os.close(end)


def test_process_that_closes_its_streams_is_still_waited_for(tmp_path):
    ended = runner(tmp_path)[0].run(shell("exec >&- 2>&-; sleep 0.05; exit 4"))
    assert ended.code == 4


def test_signal_is_told_as_a_negative_code(tmp_path):
    assert runner(tmp_path)[0].run(shell("kill -SEGV $$")).code == -11


def test_finds_programs_along_path(tmp_path):
    made, _ = runner(tmp_path)
    assert made.find("sh") is not None and os.access(str(made.find("sh")), os.X_OK)
    assert made.find("no-such-program-here") is None


def test_a_process_that_was_killed_tells_how(tmp_path):
    ended = runner(tmp_path)[0].run(shell("kill -KILL $$"))
    assert ended.how == "was killed by signal 9, most often for want of memory,"
    assert runner(tmp_path)[0].run(shell("kill -SEGV $$")).how == "was killed by signal 11"
    assert runner(tmp_path)[0].run(shell("exit 3")).how == "ended with code 3"
