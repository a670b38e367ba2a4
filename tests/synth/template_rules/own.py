"""Our own templates by check-templates and cloudformation-validate.

Run with `python -m tests.synth.template_rules.own`.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from cloudformation_validate import CompositeEngine, Severity, TemplateContent

from template_rules import check

ENVIRONMENTS = ("dev", "local")
LEFT_OUT = {"W9013": "an environment file names its account: synth looks nothing up"}
"""Rules of cloudformation-validate that our design answers."""


def main() -> int:
    """Return 1 and print every finding, warnings too, when there is one."""
    os.environ.setdefault("CDK_VALIDATION", "false")
    os.environ.setdefault("JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION", "20")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        synthesize(folder)
        findings = [*own_findings(folder), *validated(folder)]
    print("\n".join(findings) if findings else "Our templates: no finding.")
    return 1 if findings else 0


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


if __name__ == "__main__":
    sys.exit(main())
