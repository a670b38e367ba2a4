"""`roundhouse lengths`: what padding and truncation cost real requests."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from roundhouse.cli.options import Env, Form, Format, Root
from roundhouse.lengths.options import PadAs, TimedBy

if TYPE_CHECKING:
    from roundhouse.lengths.report import LengthsReport
    from roundhouse.report import Report

EXAMPLE = "roundhouse lengths sentence-embedder --env dev --requests requests.jsonl"


def lengths(
    model: Annotated[str, typer.Argument(help="A model of the environment.")],
    env: Env,
    requests: Annotated[
        Path | None,
        typer.Option(help="JSON lines: requests as the endpoint takes them, or captures."),
    ] = None,
    profiles: Annotated[
        int, typer.Option(min=1, max=16, help="Most optimization profiles of a proposal.")
    ] = 4,
    timing: Annotated[
        TimedBy,
        typer.Option(
            help="Where times come from; auto: the engine on a CPU, else endpoint or lock."
        ),
    ] = TimedBy.auto,
    pad_as: Annotated[
        PadAs | None,
        typer.Option(help="How texts are padded; default: as the environment's server does."),
    ] = None,
    seconds: Annotated[float, typer.Option(min=1, max=600, help="Time spent on timing.")] = 20,
    write: Annotated[
        bool,
        typer.Option("--write", help="Only write the last proposal into the model file."),
    ] = False,
    output: Annotated[
        Path | None, typer.Option(help="Folder for the report; default: build/lengths.")
    ] = None,
    root: Root = None,
    form: Form = Format.text,
) -> None:
    """Show what padding and truncation cost.

    Counts the tokens of real requests, runs them through the built engine, and proposes
    optimization profiles.
    """
    from roundhouse.errors import UsageError
    from roundhouse.lengths.analysis import (
        analyse_lengths,
        report_folder,
        write_profiles,
        write_report,
    )
    from roundhouse.lengths.options import LengthsOptions
    from roundhouse.paths import current_paths
    from roundhouse.report import open_report
    from roundhouse.session import open_session

    paths, report = current_paths(root), open_report(form)
    folder = report_folder(paths, env, model) if output is None else output
    if write:
        report.print(write_profiles(paths, model, folder))
        return
    if requests is None:
        raise UsageError("--requests FILE: is missing; give requests as JSON lines.")
    command = ["roundhouse", "lengths", model, "--env", env, "--write"]
    command += [] if output is None else ["--output", str(output)]
    command += [] if root is None else ["--root", str(root)]
    options = LengthsOptions(
        requests=requests.absolute(),
        most_profiles=profiles,
        timed_by=timing,
        pad_as=pad_as,
        seconds=seconds,
        write_command=shlex.join(command),
    )
    found = analyse_lengths(open_session(paths, report, env), model, options)
    write_report(found, folder)
    _show(report, found, folder, form)


def _show(report: Report, found: LengthsReport, folder: Path, form: Format) -> None:
    from roundhouse.lengths.report import (
        COLUMNS,
        RIGHT,
        document,
        note_lines,
        profile_lines,
        rows_of,
    )
    from roundhouse.paths import displayed_path
    from roundhouse.report import print_json, table

    if form is Format.json:
        print_json(document(found))
        return
    tables = [("As it is", found.costs)]
    if found.proposal is not None:
        tables.append(("As proposed", found.proposal.costs))
    for title, costs in tables:
        if costs:
            rows = rows_of(costs, found.usd_an_hour)
            report.print_table(table(COLUMNS, rows, right=RIGHT, title=title))
    for line in note_lines(found):
        report.print(line)
    if found.proposal is not None:
        report.print("\n".join(["", *profile_lines(found), ""]))
        report.print(f"Into the model file: {found.write_command}")
    report.print(f"The report: {displayed_path(folder / 'report.md')}, report.json.")
