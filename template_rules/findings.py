"""Findings of all templates of a folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One fault of a template; `message` holds the value, the allowed values and the way out."""

    rule: str
    severity: Literal["error", "warning"]
    template: str
    resource: str | None
    path: str
    message: str
    line: int | None = None

    def __str__(self) -> str:
        line = "" if self.line is None else f":{self.line}"
        at = ".".join(part for part in (self.resource, self.path) if part)
        return f"{self.template}{line}: {self.rule} {at}: {self.message}"


def check(folder: Path) -> tuple[Finding, ...]:
    """Return the findings of a cloud assembly, or of any folder of templates.

    Raises `FileNotFoundError` when there is no such folder.
    """
    from template_rules.checking import checked
    from template_rules.files import template_files

    files = template_files(folder)
    return tuple(
        Finding(
            rule=finding.rule,
            severity=finding.severity,
            template=finding.file,
            resource=finding.resource,
            path=finding.path,
            message=str(finding),
        )
        for finding in (*files.findings, *checked(files.templates).findings)
    )
