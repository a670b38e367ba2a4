"""Our own templates by check-templates and cloudformation-validate."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from cloudformation_validate import CompositeEngine, Severity, TemplateContent

from template_rules import check

ENVIRONMENTS = ("dev", "local")
LEFT_OUT = {"W9013": "an environment file names its account: synth looks nothing up"}
"""Rules of cloudformation-validate that our design answers."""


def synthesize(folder: Path) -> None:
    """Write every shipped environment, once with every engine in its lock and once with none."""
    from tests.synth.assembly import synthesized
    from tests.synth.deployments import environment, locked, unlocked

    for name in ENVIRONMENTS:
        synthesized(folder / "locked" / name, environment(name), locked(name))
        synthesized(folder / "unlocked" / name, environment(name), unlocked(name))


def own_findings(folder: Path) -> Iterator[str]:
    """Yield the findings of check-templates, for each assembly by itself."""
    for assembly in sorted(folder.glob("*/*")):
        yield from (f"{assembly.name}/{finding}" for finding in check(assembly))


def validated(folder: Path) -> Iterator[str]:
    """Yield what cloudformation-validate reports above information, for each text once."""
    engine = CompositeEngine()
    texts = {path.read_text(encoding="utf-8"): path for path in folder.rglob("*.template.json")}
    for text, path in texts.items():
        report = engine.validate_template(TemplateContent(text, path.name))
        for diagnostic in report.diagnostics:
            quiet = diagnostic.severity in (Severity.INFO, Severity.DEBUG)
            if not quiet and diagnostic.rule_id not in LEFT_OUT:
                yield f"{path.relative_to(folder)}: {diagnostic.rule_id} {diagnostic.message}"
