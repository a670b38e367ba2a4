"""Progress on a terminal or in a log: one line a step, and tables."""

from __future__ import annotations

import json
import sys
import textwrap
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from roundhouse import interruption

UPDATE_SECONDS = 2.0
REPEAT_SECONDS = 20.0
PLAIN_WIDTH = 140
PROGRESS_WIDTH = 110
UNLIMITED_WIDTH = 10_000
"""Columns of a table that no terminal limits."""


def shorten(text: str) -> str:
    """Return a line of progress, cut between words."""
    return textwrap.shorten(text, PROGRESS_WIDTH, placeholder=" …")


@dataclass(kw_only=True)
class Step:
    """One piece of work under way: `update` says where it is, `done` what it came to."""

    title: str
    console: Console
    progress: Progress | None
    begin: float = field(default_factory=time.monotonic)
    detail: str = ""
    shown_at: float = 0.0
    last: str = ""

    def update(self, text: str) -> None:
        """Show where the work is.

        In place on a terminal, else as a line, seldom, and sooner when it says something
        new.
        """
        short = shorten(text)
        if self.progress is not None:
            self.progress.update(
                self.progress.task_ids[0], description=f"{self.title}  [dim]{escape(short)}[/dim]"
            )
        elif self.seconds - self.shown_at >= (
            REPEAT_SECONDS if short == self.last else UPDATE_SECONDS
        ):
            self.shown_at, self.last = self.seconds, short
            self.console.print(f"    … {self.seconds:5.1f} s  {escape(short)}", soft_wrap=True)

    def finish(self, detail: str) -> None:
        """Leave what the work came to."""
        self.detail = detail

    @property
    def seconds(self) -> float:
        """Seconds since the step began."""
        return time.monotonic() - self.begin


@dataclass(frozen=True, kw_only=True)
class Report:
    """Write steps and remembers how long each took.

    `check` is asked before each, and raises to break off.
    """

    console: Console
    check: Callable[[], None] = lambda: None
    times: list[tuple[str, float]] = field(default_factory=list)

    @contextmanager
    def step(self, title: str) -> Iterator[Step]:
        """One step: a clock while it runs, one line when it is done."""
        self.check()
        progress = self._clock(title) if self.console.is_terminal else None
        if progress is None:
            self.console.print(f"  {title} …")
        step = Step(title=title, console=self.console, progress=progress)
        try:
            if progress is None:
                yield step
            else:
                with progress:
                    yield step
        except BaseException:
            self.console.print(f"[red]✗[/red] {title}  [dim]{step.seconds:.1f} s[/dim]")
            raise
        self.times.append((title, step.seconds))
        detail = f": {escape(step.detail)}" if step.detail else ""
        self.console.print(
            f"[green]✓[/green] {title}{detail}  [dim]{step.seconds:.1f} s[/dim]", soft_wrap=True
        )

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
            self.console.print(table.title)
        for cells in zip(*(column.cells for column in table.columns), strict=True):
            for column, cell in zip(table.columns, cells, strict=True):
                self.console.print(f"{column.header}: {cell}", soft_wrap=True)
            self.console.print()

    @property
    def is_interactive(self) -> bool:
        """Return whether a person can be asked: standard input and the output are terminals."""
        return sys.stdin.isatty() and self.console.is_terminal

    def confirm(self, question: str) -> bool:
        """Ask a person yes or no; the default is no."""
        return self.console.input(f"{escape(question)} [y/N] ").strip().lower() in ("y", "yes")

    def _clock(self, title: str) -> Progress:
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        progress = Progress(*columns, console=self.console, transient=True)
        progress.add_task(title, total=None)
        return progress


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


def table(
    columns: Iterable[str],
    rows: Iterable[Iterable[str]],
    *,
    right: Collection[str] = (),
    title: str | None = None,
) -> Table:
    """Return a table of plain text; the columns in `right` are aligned to the right."""
    result = Table(title=title, title_justify="left")
    for column in columns:
        justify: Literal["left", "right"] = "right" if column in right else "left"
        result.add_column(column, overflow="fold", justify=justify)
    for row in rows:
        result.add_row(*map(escape, row))
    return result
