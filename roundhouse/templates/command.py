"""`roundhouse check-templates` as the command line has it: its options, and what it prints."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from roundhouse.cli.options import Form, Format

if TYPE_CHECKING:
    from rich.console import Console

    from roundhouse.templates.check import TemplateReport

EXAMPLE = "roundhouse check-templates cdk.out --previous cdk.out.before"
COLORS = {"error": "red", "warning": "yellow"}


def check_templates(
    place: Annotated[
        Path,
        typer.Argument(
            metavar="[DIR]", help="Folder, cloud assembly or file with CloudFormation templates."
        ),
    ] = Path("cdk.out"),
    previous: Annotated[
        Path | None,
        typer.Option(
            help="The version that is deployed now, to see what SageMaker refuses to change."
        ),
    ] = None,
    region: Annotated[
        str | None, typer.Option(help="Region of templates that do not say theirs.")
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit code 1 for warnings, too.")
    ] = False,
    list_rules: Annotated[bool, typer.Option("--list-rules", help="Only list every rule.")] = False,
    form: Form = Format.text,
) -> None:
    """Check CloudFormation templates by our own rules.

    Any folder's; what SageMaker refuses, what costs days, what is open.
    """
    from rich.console import Console

    from roundhouse.report import print_json
    from roundhouse.templates import check as checking

    if list_rules:
        _list(checking.rules_as_dicts(), form)
        return
    report = checking.check_templates(place, previous=previous, region=region)
    if form is Format.json:
        print_json(report.as_dict())
    else:
        _print(report, Console(highlight=False, soft_wrap=True))
    if report.refuses(strict=strict):
        raise typer.Exit(1)


def _print(report: TemplateReport, console: Console) -> None:
    from rich.markup import escape

    for file, findings in groupby(report.findings, key=lambda finding: finding.file):
        console.print(f"[bold]{escape(file)}[/bold]")
        for finding in findings:
            console.print(
                f"  [{COLORS[finding.severity]}]{finding.severity}[/] {escape(str(finding))}"
            )
    for finding in report.acknowledged:
        console.print(
            f"[dim]{escape(f'{finding.file} {finding.place}: {finding.rule} acknowledged: {finding.reason}')}[/dim]"
        )
    for name, why in report.files.skipped:
        console.print(f"[dim]left out {escape(name)}: {escape(why)}[/dim]")
    console.print(report.headline)


def _list(rules: list[dict[str, Any]], form: Format) -> None:
    if form is Format.json:
        from roundhouse.report import print_json

        print_json(rules)
        return
    for rule in rules:
        print(
            f"{rule['id']}  {rule['severity']:<8} {rule['sentence']}{' (with --previous)' if rule['needs_previous'] else ''}"
        )
