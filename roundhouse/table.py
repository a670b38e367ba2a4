"""A table of texts, on a terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

from rich.markup import escape
from rich.table import Table as TerminalTable

NOTHING = "–"


@dataclass(frozen=True)
class Table:
    """Texts in rows; the columns in `right` are aligned to the right.

    `chief`: numbers of rows that stand out. `folded`: closed at first where that is possible.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: Collection[str] = ()
    title: str | None = None
    chief: Collection[int] = field(default=())
    folded: bool = False

    def without_empty_columns(self) -> Table:
        """Return the table without columns that hold nothing but dashes."""
        kept = [n for n in range(len(self.columns)) if any(row[n] != NOTHING for row in self.rows)]
        return replace(
            self,
            columns=tuple(self.columns[n] for n in kept),
            rows=tuple(tuple(row[n] for n in kept) for row in self.rows),
        )

    def __rich__(self) -> TerminalTable:
        """Return what a console prints."""
        result = TerminalTable(title=self.title, title_justify="left")
        for column in self.columns:
            justify: Literal["left", "right"] = "right" if column in self.right else "left"
            result.add_column(column, overflow="fold", justify=justify)
        for number, row in enumerate(self.rows):
            style = "bold" if number in self.chief else None
            result.add_row(*map(escape, row), style=style)
        return result

    def markdown(self, cell: Callable[[str], str] = lambda text: text.replace("|", "\\|")) -> str:
        """Return a Markdown table; `cell` makes a text harmless."""
        rule = ["---:" if column in self.right else "---" for column in self.columns]
        lines = [self.columns, rule, *(map(cell, row) for row in self.rows)]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def table(
    columns: Iterable[str],
    rows: Iterable[Iterable[str]],
    *,
    right: Collection[str] = (),
    title: str | None = None,
    chief: Collection[int] = (),
    folded: bool = False,
) -> Table:
    """Return a table of plain text, by any iterables of its columns and rows."""
    return Table(tuple(columns), tuple(map(tuple, rows)), right, title, chief, folded)
