"""What a rule says of a template: what is wrong, the value given, the values allowed, the way out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning"]


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One thing wrong at one place of a template, as its rule sees it: `path` is below the
    resource, or the template's own.
    """

    what: str
    way_out: str
    resource: str | None = None
    path: str = ""
    value: str | None = None
    allowed: str | None = None
    severity: Severity | None = None
    """None is the rule's own."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A problem with the file and the rule that found it; `reason` is set once somebody
    acknowledged it.
    """

    rule: str
    severity: Severity
    file: str
    resource: str | None
    path: str
    what: str
    value: str | None
    allowed: str | None
    way_out: str
    reason: str | None = None

    @property
    def place(self) -> str:
        """`Resource.Property[0].Path`, or the path in the template."""
        return ".".join(part for part in (self.resource, self.path) if part)

    def __str__(self) -> str:
        given = "" if self.value is None else f", given {self.value}"
        allowed = "" if self.allowed is None else f"; allowed: {self.allowed}"
        end = "" if self.way_out.endswith("?") else "."
        place = f"{self.place}: " if self.place else ""
        return f"{place}{self.what}{given}{allowed}; {self.way_out}{end} [{self.rule}]"


def order(finding: Finding) -> tuple[str, str, str, str, str]:
    """Findings by file, place and rule, so that two runs say the same in the same order."""
    return (finding.file, finding.resource or "", finding.path, finding.rule, finding.what)
