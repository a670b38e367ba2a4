"""What a person sees of several builds at once: a line each, with where it is and how long it has
taken.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from roundhouse.report import REPEAT_SECONDS, UPDATE_SECONDS, Report, shorten


@dataclass(kw_only=True)
class Line:
    """One build that has begun."""

    title: str
    task: TaskID | None
    begin: float = field(default_factory=time.monotonic)
    said: float = 0.0
    last: str = ""

    @property
    def seconds(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self.begin


@dataclass(kw_only=True)
class Lines:
    """The builds under way: in place on a terminal; elsewhere a line when one says something new,
    seldom.
    """

    report: Report
    progress: Progress | None
    _lines: dict[str, Line] = field(default_factory=dict)

    def update(self, key: str, title: str, text: str) -> None:
        """Shows where a build is; the first time, that it has begun."""
        line = self._lines.get(key)
        if line is None:
            line = self._begun(key, title)
        short = shorten(text)
        if self.progress is not None and line.task is not None:
            self.progress.update(line.task, description=f"{title}  [dim]{escape(short)}[/dim]")
        elif short and line.seconds - line.said >= (
            REPEAT_SECONDS if short == line.last else UPDATE_SECONDS
        ):
            line.said, line.last = line.seconds, short
            self._print(f"    … {line.seconds:5.1f} s  {escape(title)}: {escape(short)}")

    def done(self, key: str, title: str, detail: str) -> None:
        """Leaves what a build came to, and remembers how long it took."""
        line = self._ended(key, title)
        self.report.times.append((title, line.seconds))
        self._print(
            f"[green]✓[/green] {escape(title)}: {escape(detail)}  [dim]{line.seconds:.1f} s[/dim]"
        )

    def failed(self, key: str, title: str, reason: str) -> None:
        """Leaves why a build failed."""
        line = self._ended(key, title)
        self._print(
            f"[red]✗[/red] {escape(title)}: {escape(reason)}  [dim]{line.seconds:.1f} s[/dim]"
        )

    def _begun(self, key: str, title: str) -> Line:
        if self.progress is None:
            self._print(f"  {escape(title)} …")
        task = None if self.progress is None else self.progress.add_task(title, total=None)
        self._lines[key] = Line(title=title, task=task)
        return self._lines[key]

    def _ended(self, key: str, title: str) -> Line:
        line = self._lines.pop(key, None)
        if line is None:
            return Line(title=title, task=None)
        if self.progress is not None and line.task is not None:
            self.progress.remove_task(line.task)
        return line

    def _print(self, text: str) -> None:
        self.report.console.print(text, soft_wrap=True)


@contextmanager
def build_lines(report: Report) -> Iterator[Lines]:
    """Lines for as long as builds are followed."""
    if not report.console.is_terminal:
        yield Lines(report=report, progress=None)
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=report.console, transient=True) as progress:
        yield Lines(report=report, progress=progress)
