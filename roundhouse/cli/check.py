"""`roundhouse check`: every fault of every onboarding file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from roundhouse.cli.options import Form, Format, Root

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from onboarding.fault import Fault

EXAMPLE = "roundhouse check --format json"


def check(root: Root = None, form: Form = Format.text) -> None:
    """Report every fault of every file.

    Each with file and line, what is wrong, what is allowed, the way out.
    """
    from onboarding.memory_findings import memory_findings
    from onboarding.tree import read_tree
    from roundhouse.paths import current_folder, current_paths
    from roundhouse.report import open_report, print_json
    from roundhouse.text import quantity

    folder = current_paths(root).tree
    tree = read_tree(folder)
    planning, report = memory_findings(tree), open_report(form)
    elsewhere = (
        "" if root is not None or current_folder().is_relative_to(folder) else f" in {folder}"
    )
    faults = (*tree.faults, *planning.faults)
    if form is Format.json:
        print_json([fault.model_dump(mode="json") for fault in faults])
    elif faults:
        report.console.print(faults_table(faults))
        report.print(f"{quantity(len(faults), 'fault')}{elsewhere}.")
    else:
        count = len(tree.models) + len(tree.endpoints) + len(tree.environments)
        report.print(f"{quantity(count, 'file')}{elsewhere}, no fault.")
    for note in planning.notes:
        report.print(f"Note: {note}")
    if faults:
        raise typer.Exit(1)


def faults_table(faults: Sequence[Fault]) -> Table:
    """Return a table of faults: file and line, what is wrong, what is allowed, the way out."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(show_lines=True)
    table.add_column("File", no_wrap=True)
    for column in ("What", "Given", "Allowed", "Way out"):
        table.add_column(column, overflow="fold")
    for fault in faults:
        file = fault.file if fault.line is None else f"{fault.file}:{fault.line}"
        cells = (file, fault.what, fault.value, fault.allowed, fault.way_out)
        table.add_row(*(escape("" if cell is None else cell) for cell in cells))
    return table
