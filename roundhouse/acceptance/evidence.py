"""The folder of one run: raw logs and answers as they came, and the comparison made of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roundhouse.acceptance.assumptions import Finding, Verdict
from roundhouse.errors import NotReadyError

TABLE, DOCUMENT = "comparison.md", "comparison.json"
COLUMNS = ("assumption", "expected", "found", "verdict")


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """The evidence of one run; every writer raises NotReadyError where the folder cannot be."""

    folder: Path

    def write_text(self, name: str, text: str) -> Path:
        """Write a file as it came; `name` may hold folders."""
        path = self.folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise NotReadyError(
                f"{path}: cannot be written ({error.strerror}); free the folder, then try again."
            ) from error
        return path

    def write_json(self, name: str, value: Any) -> Path:
        """Write an answer of AWS or of an endpoint; times become text."""
        return self.write_text(name, json.dumps(value, indent=2, default=str) + "\n")

    def write_comparison(self, title: str, findings: Sequence[Finding]) -> None:
        """Write every finding as JSON and as a Markdown table, and what differs above it."""
        self.write_json(DOCUMENT, {"run": title, "findings": [row.as_dict() for row in findings]})
        self.write_text(TABLE, markdown(title, findings))


def markdown(title: str, findings: Sequence[Finding]) -> str:
    """Return the comparison as a page: counts, differences first, then every row."""
    counts = ", ".join(
        f"{sum(row.verdict is verdict for row in findings)} {verdict.value}" for verdict in Verdict
    )
    differing = [row for row in findings if row.verdict is Verdict.differs]
    parts = [f"# {title}", counts + "."]
    if differing:
        parts += ["## What differs from what was assumed", _table(differing)]
    parts += ["## Every assumption", _table(findings)]
    return "\n\n".join(parts) + "\n"


def cells(finding: Finding) -> tuple[str, ...]:
    """Return the row of a table."""
    assumption = finding.assumption
    label = f"{assumption.name}: {assumption.says}"
    return label, assumption.expected, finding.found, finding.verdict.value


def _table(findings: Iterable[Finding]) -> str:
    rows = [COLUMNS, tuple("---" for _ in COLUMNS), *map(cells, findings)]
    return "\n".join(f"| {' | '.join(map(_cell, row))} |" for row in rows)


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
