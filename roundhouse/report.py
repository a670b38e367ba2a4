"""Progress on a terminal or in a log: one line a step, and tables."""

from __future__ import annotations

import json
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from roundhouse import interruption
from roundhouse.table import Table

UPDATE_SECONDS = 2.0
REPEAT_SECONDS = 20.0
PLAIN_WIDTH = 140
PROGRESS_WIDTH = 110
UNLIMITED_WIDTH = 10_000
"""Columns of a table that no terminal limits."""


@dataclass(kw_only=True)
class Step:
    """One piece of work under way: a task of `progress` on a terminal, else lines in a log."""

    title: str
    console: Console
    progress: Progress | None
    log_prefix: str = ""
    """Begins the lines in a log, where several steps go on at once."""
    task: TaskID | None = None
    begin: float = field(default_factory=time.monotonic)
    detail: str = ""
    shown_at: float = 0.0
    last: str = ""

    def __post_init__(self) -> None:
        if self.progress is None:
            self.console.print(f"  {escape(self.title)} …", soft_wrap=True)
        else:
            self.task = self.progress.add_task(escape(self.title), total=None)

    def update(self, text: str) -> None:
        """Show where the work is; in a log seldom, and sooner when the text is a new one."""
        short = textwrap.shorten(text, PROGRESS_WIDTH, placeholder=" …")
        if self.progress is not None and self.task is not None:
            description = f"{escape(self.title)}  [dim]{escape(short)}[/dim]"
            self.progress.update(self.task, description=description)
        elif short and self.seconds - self.shown_at >= (
            REPEAT_SECONDS if short == self.last else UPDATE_SECONDS
        ):
            self.shown_at, self.last = self.seconds, short
            line = escape(f"{self.log_prefix}{short}")
            self.console.print(f"    … {self.seconds:5.1f} s  {line}", soft_wrap=True)

    def finish(self, detail: str) -> None:
        """Keep the result, which the step's last line shows."""
        self.detail = detail

    def end(self, detail: str, *, has_failed: bool = False) -> None:
        """Print the step's last line: its result or failure, and its seconds."""
        if self.progress is not None and self.task is not None:
            self.progress.remove_task(self.task)
        mark = "[red]✗[/red]" if has_failed else "[green]✓[/green]"
        text = escape(f"{self.title}: {detail}" if detail else self.title)
        self.console.print(f"{mark} {text}  [dim]{self.seconds:.1f} s[/dim]", soft_wrap=True)

    @property
    def seconds(self) -> float:
        """Seconds since the step began."""
        return time.monotonic() - self.begin


@dataclass(frozen=True, kw_only=True)
class Report:
    """Print steps and keep their durations; `check` may raise before a step to end the command."""

    console: Console
    check: Callable[[], None] = lambda: None
    times: list[tuple[str, float]] = field(default_factory=list)

    @contextmanager
    def step(self, title: str) -> Iterator[Step]:
        """One step: a clock while it runs, one line when it is done."""
        self.check()
        with self.progress() as progress:
            step = Step(title=title, console=self.console, progress=progress)
            try:
                yield step
            except BaseException:
                step.end("", has_failed=True)
                raise
            self.times.append((title, step.seconds))
            step.end(step.detail)

    @contextmanager
    def progress(self) -> Iterator[Progress | None]:
        """Show the steps under way in place; None where the console is no terminal."""
        if not self.console.is_terminal:
            yield None
            return
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        with Progress(*columns, console=self.console, transient=True) as progress:
            yield progress

    def print(self, text: str) -> None:
        """Print one line as it is."""
        self.console.print(escape(text), soft_wrap=True)

    def print_table(self, table: Table) -> None:
        """Print a table, or a line a cell where the terminal is too narrow for its words."""
        unlimited = self.console.options.update(width=UNLIMITED_WIDTH)
        if Measurement.get(self.console, unlimited, table).minimum <= self.console.width:
            self.console.print(table)
            return
        if table.title is not None:
            self.print(table.title)
        for row in table.rows:
            for column, cell in zip(table.columns, row, strict=True):
                self.print(f"{column}: {cell}")
            self.console.print()

    @property
    def is_interactive(self) -> bool:
        """Return whether a person can be asked: standard input and the output are terminals."""
        return sys.stdin.isatty() and self.console.is_terminal

    def confirm(self, question: str) -> bool:
        """Ask a person yes or no; the default is no."""
        return self.console.input(f"{escape(question)} [y/N] ").strip().lower() in ("y", "yes")

    def ask(self, question: str) -> str:
        """Ask a person for a word."""
        return self.console.input(f"{escape(question)} ").strip()


printed_documents: list[Any] = []
"""What was printed as JSON by this process."""


def open_report(form: str = "text") -> Report:
    """Return a report on standard output, or on standard error when the result is JSON."""
    console = Console(stderr=form == "json", highlight=False)
    if not console.is_terminal:
        console.width = PLAIN_WIDTH
    return Report(console=console, check=interruption.check)


def print_json(value: Any) -> None:
    """Print one JSON document on standard output."""
    printed_documents.append(value)
    print(json.dumps(value, indent=2, ensure_ascii=False))
