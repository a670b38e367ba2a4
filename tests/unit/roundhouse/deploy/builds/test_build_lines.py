"""Progress of several builds at once."""

from __future__ import annotations

import io

from rich.console import Console

from roundhouse.report import Report, Step


def report_on(terminal):
    console = Console(file=io.StringIO(), width=120, force_terminal=terminal, color_system=None)
    return Report(console=console)


def test_a_log_has_the_beginning_and_the_end_of_each_step():
    report = report_on(False)
    with report.progress() as progress:
        steps = [Step(title=t, console=report.console, progress=progress) for t in ("a [1]", "b")]
        steps[1].end("too wrong [0.91]", has_failed=True)
        steps[0].end("fp16 engine 01, 3 MB")
    lines = report.console.file.getvalue().splitlines()
    assert lines[:2] == ["  a [1] …", "  b …"]
    assert lines[2].startswith("✗ b: too wrong [0.91]  0.0 s")
    assert lines[3].startswith("✓ a [1]: fp16 engine 01, 3 MB  0.0 s")


def test_a_log_has_a_new_text_seldom_and_the_same_one_more_seldom():
    report = report_on(False)
    step = Step(title="a", console=report.console, progress=None, log_prefix="a: ")
    for seconds_ago in (1, 3, 4, 6, 30):
        step.begin = step.begin - seconds_ago
        step.update("exporting")
    lines = [line for line in report.console.file.getvalue().splitlines() if "…" in line]
    assert [line.split(" s  ")[1] for line in lines[1:]] == ["a: exporting"] * 2


def test_a_terminal_keeps_only_the_result_of_each_step():
    report = report_on(True)
    with report.progress() as progress:
        first = Step(title="a", console=report.console, progress=progress)
        first.update("exporting [red]")
        descriptions = [task.description for task in progress.tasks]
        assert descriptions == ["a  [dim]exporting \\[red][/dim]"]
        Step(title="b", console=report.console, progress=progress)
        first.end("built")
        assert [task.description for task in progress.tasks] == ["b"]
    assert "✓ a: built" in report.console.file.getvalue()
