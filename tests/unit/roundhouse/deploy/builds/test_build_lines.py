"""What a person sees of several builds at once."""

from __future__ import annotations

import io

from rich.console import Console

from roundhouse.deploy.builds.monitor import build_lines
from roundhouse.report import Report


def report_on(terminal):
    console = Console(file=io.StringIO(), width=120, force_terminal=terminal, color_system=None)
    return Report(console=console)


def test_lines_tell_beginning_and_end_of_each_build_and_remember_its_time():
    report = report_on(False)
    with build_lines(report) as lines:
        lines.update("a", "Building a (not in the lock)", "starting")
        lines.update("b", "Building b (not in the lock)", "starting")
        lines.failed("b", "Building b (not in the lock)", "too wrong [0.91]")
        lines.finish("a", "Building a (not in the lock)", "fp16 engine 01, 3 MB")
    shown = report.console.file.getvalue().splitlines()
    assert shown[0] == "  Building a (not in the lock) …"
    assert shown[1] == "  Building b (not in the lock) …"
    assert shown[2].startswith("✗ Building b (not in the lock): too wrong [0.91]  0.0 s")
    assert shown[3].startswith("✓ Building a (not in the lock): fp16 engine 01, 3 MB  0.0 s")
    assert [title for title, _ in report.times] == ["Building a (not in the lock)"]


def test_lines_on_a_terminal_leave_only_what_came_of_each_build():
    report = report_on(True)
    with build_lines(report) as lines:
        lines.update("a", "Building a", "exporting [red]")
        assert [task.description for task in lines.progress.tasks] == [
            "Building a  [dim]exporting \\[red][/dim]"
        ]
        lines.update("b", "Building b", "starting")
        lines.finish("a", "Building a", "built")
        assert len(lines.progress.tasks) == 1
    assert "✓ Building a: built" in report.console.file.getvalue()


def test_an_engine_that_ended_before_it_was_seen_is_told_too():
    report = report_on(False)
    with build_lines(report) as lines:
        lines.failed("a", "Building a", "no project")
    assert "✗ Building a: no project" in report.console.file.getvalue()
