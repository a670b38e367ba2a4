"""`roundhouse check-templates`: our template rules on any folder of templates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onboarding.nearest import comma_list, did_you_mean
from roundhouse.errors import NotReadyError, RoundhouseError
from roundhouse.text import quantity
from template_rules.catalogue import hosting_region_names
from template_rules.checking import Checked, checked
from template_rules.files import TemplateFiles, template_files
from template_rules.finding import Finding, order
from template_rules.rule import ChangeRule
from template_rules.rules import all_rules
from template_rules.template import Template

FORM = 1
"""Version of the JSON: it changes when a key changes its meaning or goes."""


@dataclass(frozen=True, kw_only=True)
class TemplateReport(Checked):
    """What a check of templates came to, and the files it was made of."""

    files: TemplateFiles

    def refuses(self, *, strict: bool) -> bool:
        """True when an error stands; strictly, a warning too."""
        return bool(self.findings) if strict else self.errors > 0

    @property
    def headline(self) -> str:
        """What it came to, in one sentence."""
        parts = [
            quantity(len(self.files.templates), "template"),
            quantity(self.errors, "error"),
            quantity(self.warnings, "warning"),
            f"{len(self.acknowledged)} acknowledged",
        ]
        return f"{', '.join(parts)}."

    def as_dict(self) -> dict[str, Any]:
        """The JSON that machines read; keys and order are stable."""
        return {
            "form": FORM,
            "templates": len(self.files.templates),
            "errors": self.errors,
            "warnings": self.warnings,
            "findings": [_as_dict(finding) for finding in self.findings],
            "acknowledged": [
                {**_as_dict(finding), "reason": finding.reason} for finding in self.acknowledged
            ],
            "skipped": [{"file": name, "why": why} for name, why in self.files.skipped],
        }


def check_templates(
    place: Path, *, previous: Path | None = None, region: str | None = None
) -> TemplateReport:
    """Checks every template of a place, and each against its previous version.

    Raises `NotReadyError` when a place is not there, and `RoundhouseError` when it holds no template at
    all, when a previous
    version cannot be read, and for a region that no template is deployed to.
    """
    _refuse_unknown(region)
    files = _files(place, region)
    if not files.templates and not files.findings:
        others = f" ({quantity(len(files.skipped), 'other file')})" if files.skipped else ""
        raise RoundhouseError(
            f"{place}: there is no CloudFormation template here{others}; run `npx cdk synth`, then name cdk.out."
        )
    before = {} if previous is None else _previous(files.templates, _readable(previous, region))
    result = checked(files.templates, before)
    return TemplateReport(
        files=files,
        findings=tuple(sorted((*files.findings, *result.findings), key=order)),
        acknowledged=result.acknowledged,
    )


def rules_as_dicts() -> list[dict[str, Any]]:
    """Every rule, for machines and for tables."""
    return [
        {
            "id": each.id,
            "severity": each.severity,
            "needs_previous": isinstance(each, ChangeRule),
            "sentence": each.sentence,
        }
        for each in all_rules()
    ]


def _files(place: Path, region: str | None) -> TemplateFiles:
    try:
        return template_files(place, region=region)
    except FileNotFoundError as error:
        raise NotReadyError(str(error)) from None


def _refuse_unknown(region: str | None) -> None:
    known = hosting_region_names()
    if region is not None and region not in known:
        way_out = did_you_mean(region, known, "name one of these, or leave it out")
        raise RoundhouseError(
            f"--region {region}: SageMaker hosts nothing there; known: {comma_list(known)}; {way_out}."
        )


def _readable(previous: Path, region: str | None) -> Sequence[Template]:
    """The templates of the previous version: without one, or with a damaged one, no change could be
    seen, and all seem well.
    """
    files = _files(previous, region)
    if files.findings:
        damaged = "; ".join(f"{finding.file}: {finding.what}" for finding in files.findings)
        raise RoundhouseError(
            f"--previous {previous}: {damaged}; mend it, or leave it out of the folder."
        )
    if not files.templates:
        raise RoundhouseError(
            f"--previous {previous}: there is no CloudFormation template here; name the version deployed now."
        )
    return files.templates


def _previous(now: Sequence[Template], before: Sequence[Template]) -> Mapping[str, Template]:
    """The previous version of each template: of the same stack, or else of the same file; one alone
    is the other's.
    """
    if len(now) == len(before) == 1:
        return {now[0].file: before[0]}
    by_stack = {each.stack: each for each in before if each.stack.name is not None}
    by_file = {each.file: each for each in before}
    found = {}
    for each in now:
        match = by_stack.get(each.stack) or by_file.get(each.file)
        if match is not None:
            found[each.file] = match
    return found


def _as_dict(finding: Finding) -> dict[str, Any]:
    return {
        "rule": finding.rule,
        "severity": finding.severity,
        "file": finding.file,
        "resource": finding.resource,
        "path": finding.path,
        "what": finding.what,
        "value": finding.value,
        "allowed": finding.allowed,
        "way_out": finding.way_out,
    }
