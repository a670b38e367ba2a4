"""`roundhouse check`: every fault of every onboarding file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from roundhouse.cli.options import Form, Format, Root

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onboarding.fault import Fault
    from onboarding.tree import Tree
    from roundhouse.paths import Paths
    from roundhouse.report import Report

EXAMPLE = "roundhouse check --format json"


def check(
    fetch_headers: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="First write the headers file of this text generator: config.json and "
            "tensor headers; kilobytes, whatever the size of the weights.",
        ),
    ] = None,
    root: Root = None,
    form: Form = Format.text,
) -> None:
    """Report every fault of every file.

    Each with file and line, what is wrong, what is allowed, the way out.
    """
    from onboarding.generation_resolve import generation_plans, plan_line
    from onboarding.memory import memory_findings
    from onboarding.tree import read_tree
    from roundhouse.paths import current_folder, current_paths
    from roundhouse.report import open_report, print_json
    from roundhouse.text import quantity

    paths, report = current_paths(root), open_report(form)
    folder = paths.tree
    if fetch_headers is not None:
        _fetch_headers(paths, report, fetch_headers)
    tree = read_tree(folder)
    planning = memory_findings(tree)
    elsewhere = (
        "" if root is not None or current_folder().is_relative_to(folder) else f" in {folder}"
    )
    faults = (*tree.faults, *planning.faults)
    if form is Format.json:
        print_json([fault.model_dump(mode="json") for fault in faults])
    elif faults:
        for fault in faults:
            for line in fault_lines(fault):
                report.print(line)
        report.print(f"{quantity(len(faults), 'fault')}{elsewhere}.")
    else:
        models = len(tree.models) + len(tree.generators)
        count = models + len(tree.endpoints) + len(tree.environments)
        report.print(f"{quantity(count, 'file')}{elsewhere}, no fault.")
    notes = (*planning.notes, *_price_notes(tree))
    for note in notes:
        report.print(f"Note: {note}")
    for environment in tree.views:
        for plan in generation_plans(tree, environment):
            report.print(f"Plan: {plan_line(plan)}")
    if faults:
        raise typer.Exit(1)


def _fetch_headers(paths: Paths, report: Report, model: str) -> None:
    """Write a text generator's headers file, and say what its model file lacks."""
    from roundhouse.inspection.headers import write_headers

    written = write_headers(paths, model)
    found = written.checkpoint
    size = f"{len(found.tensors)} tensors, {found.bytes / (1 << 30):.1f} GiB of weights"
    report.print(f"{written.file}: {size}.")
    if written.line is not None:
        report.print(f"Add {written.line}.")


def _price_notes(tree: Tree) -> Iterator[str]:
    """Yield a note for each environment of AWS that uses old prices."""
    from onboarding.prices import prices_date, stale_note
    from roundhouse.session import LOCAL

    for environment, view in tree.views.items():
        if environment != LOCAL:
            used = prices_date(view.environment.spec.region, view.instance_types)
            note = stale_note(used)
            if note is not None:
                yield f"{environment}: {note}"


def fault_lines(fault: Fault) -> Iterator[str]:
    """Return a fault as lines that fold nowhere, so that values can be copied."""
    file = fault.file if fault.line is None else f"{fault.file}:{fault.line}"
    yield f"{file}: {fault.what}"
    for title, text in (
        ("given", fault.value),
        ("allowed", fault.allowed),
        ("way out", fault.way_out),
    ):
        if text:
            yield f"    {title}: {text}"
    if fault.add is not None:
        yield fault.add
