"""`roundhouse check-templates`: cfn-lint, our rules and the assembly checks on any templates."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from roundhouse.cli.options import Form, Format

if TYPE_CHECKING:
    from collections.abc import Sequence

    from template_rules import Finding
    from template_rules.read import TemplateFiles

EXAMPLE = "roundhouse check-templates cdk.out --previous cdk.out.before"
COLORS = {"error": "red", "warning": "yellow"}
FORM = 2
"""Version of the JSON: it changes when a key changes its meaning or goes."""


def check_templates(
    folder: Annotated[
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
        str | None, typer.Option(help="Region of templates whose manifest names none.")
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit code 1 for warnings, too.")
    ] = False,
    list_rules: Annotated[bool, typer.Option("--list-rules", help="Only list our rules.")] = False,
    form: Form = Format.text,
) -> None:
    """Check CloudFormation templates.

    Any folder's; what SageMaker refuses, what costs days, what is open.
    """
    if list_rules:
        _list(form)
        return
    files, findings = findings_of(folder, previous, region)
    if form is Format.json:
        from roundhouse.report import print_json

        print_json(_as_dict(files, findings))
    else:
        _print(files, findings)
    if any(strict or finding.severity == "error" for finding in findings):
        raise typer.Exit(1)


def findings_of(
    folder: Path, previous: Path | None = None, region: str | None = None
) -> tuple[TemplateFiles, Sequence[Finding]]:
    """Return the files of a folder and their findings.

    Raises `NotReadyError` when a folder is not there, and `RoundhouseError` when it has no
    template, when the previous version cannot be read, and for an unknown region.
    """
    from roundhouse.errors import NotReadyError, RoundhouseError
    from template_rules.findings import check_files, read_previous
    from template_rules.read import read_templates

    _refuse_unknown(region)
    try:
        files = read_templates(folder, region=region)
        before = None if previous is None else read_previous(previous, region=region)
    except FileNotFoundError as error:
        raise NotReadyError(str(error)) from None
    except ValueError as error:
        raise RoundhouseError(str(error)) from None
    if not files.templates and not files.faults:
        from roundhouse.text import quantity

        others = f" ({quantity(len(files.skipped), 'other file')})" if files.skipped else ""
        raise RoundhouseError(
            f"{folder}: there is no CloudFormation template here{others}; "
            "run `npx cdk synth`, then name cdk.out."
        )
    return files, check_files(files, before)


def _refuse_unknown(region: str | None) -> None:
    from cfnlint.helpers import REGIONS

    from onboarding.nearest import comma_list, did_you_mean
    from roundhouse.errors import RoundhouseError

    if region is not None and region not in REGIONS:
        way_out = did_you_mean(region, REGIONS, "name one of these, or leave it out")
        raise RoundhouseError(
            f"--region {region}: known regions: {comma_list(REGIONS)}; {way_out}."
        )


def _as_dict(files: TemplateFiles, findings: Sequence[Finding]) -> dict[str, Any]:
    """Return the JSON that machines read; keys and order are stable."""
    from dataclasses import asdict

    errors = sum(finding.severity == "error" for finding in findings)
    return {
        "form": FORM,
        "templates": len(files.templates),
        "errors": errors,
        "warnings": len(findings) - errors,
        "findings": [asdict(finding) for finding in findings],
        "skipped": [{"file": name, "why": reason} for name, reason in files.skipped],
    }


def _print(files: TemplateFiles, findings: Sequence[Finding]) -> None:
    from rich.console import Console
    from rich.markup import escape

    from roundhouse.text import quantity

    console = Console(highlight=False, soft_wrap=True)
    for file, group in groupby(findings, key=lambda finding: finding.template):
        console.print(f"[bold]{escape(file)}[/bold]")
        for finding in group:
            line = "" if finding.line is None else f" (line {finding.line})"
            color = f"[{COLORS[finding.severity]}]{finding.severity}[/]"
            text = f"{finding.place}: {finding.message} [{finding.rule}]{line}"
            console.print(f"  {color} {escape(text)}")
    for name, reason in files.skipped:
        console.print(f"[dim]left out {escape(name)}: {escape(reason)}[/dim]")
    errors = sum(finding.severity == "error" for finding in findings)
    counts = (
        quantity(len(files.templates), "template"),
        quantity(errors, "error"),
        quantity(len(findings) - errors, "warning"),
    )
    console.print(f"{', '.join(counts)}.")


def _list(form: Format) -> None:
    from template_rules.findings import rule_descriptions

    if form is Format.json:
        from roundhouse.report import print_json

        print_json([{"id": name, "sentence": text} for name, text in rule_descriptions().items()])
        return
    for name, text in rule_descriptions().items():
        print(f"{name}  {text}")
