"""What a build writes while it works: on a terminal, in a build log, in its file."""

from __future__ import annotations

import io

import pytest

from engine_build.log import WIDTH, Log


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def test_progress_is_shown_in_place_on_a_terminal_and_leaves_no_trace():
    stream = Terminal()
    log = Log(stream)
    count = log.count_calls(str.upper, 2, "layers")
    assert [count(letter) for letter in "ab"] == ["A", "B"]
    log.line("done")
    assert "\n" not in stream.getvalue().removesuffix("done\n")
    assert stream.getvalue().endswith(f"\r{'':<{WIDTH + 2}}\rdone\n")


def test_progress_is_a_seldom_line_in_a_build_log():
    stream, clock = io.StringIO(), Clock()

    def wait(seconds):
        clock.now += seconds

    count = Log(stream, clock=clock).count_calls(wait, 30, "layers")
    for _ in range(30):
        count(1)
    assert stream.getvalue().splitlines() == ["  … 10 of 30 layers", "  … 20 of 30 layers"]


def test_lines_go_to_stream_and_file_and_a_step_that_ends_says_how_long_it_took(tmp_path):
    stream, clock = io.StringIO(), Clock()
    log = Log(stream, clock=clock)
    log.keep(tmp_path / "build.log")
    log.note("for the file")
    with log.step("export", "opset 17"):
        clock.now = 2.5
    with pytest.raises(ValueError, match="no"), log.step("check", "none"):
        raise ValueError("no")
    lines = "export: opset 17\nexport … 2.5 seconds\ncheck: none\n"
    assert (stream.getvalue(), log.seconds) == (lines, {"export": 2.5})
    assert (tmp_path / "build.log").read_text() == f"for the file\n{lines}"
