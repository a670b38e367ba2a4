"""Our own templates by our rules, cfn-lint and cloudformation-validate: `python -m
tests.synth.template_rules.own`.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from roundhouse.templates.check import check_templates

ENVIRONMENTS = ("dev", "local")
LEFT_OUT = {"W9013": "an environment file names its account: synth looks nothing up"}
"""Rules of cloudformation-validate that our design answers."""


def main() -> int:
    """Exit code 1, and everything that an engine says, when one says anything: our warnings too."""
    os.environ.setdefault("CDK_VALIDATION", "false")
    os.environ.setdefault("JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION", "20")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        synthesize(folder)
        said = [*by_our_rules(folder), *by_the_others(folder)]
    print("\n".join(said) if said else "Our templates: nothing to say.")
    return 1 if said else 0


def synthesize(folder: Path) -> None:
    """Every stack of every shipped environment, once with every engine in its lock and once with
    none.
    """
    from tests.synth.assembly import synthesized
    from tests.synth.deployments import environment, locked, unlocked

    for name in ENVIRONMENTS:
        synthesized(folder / "locked" / name, environment(name), locked(name))
        synthesized(folder / "unlocked" / name, environment(name), unlocked(name))


def by_our_rules(folder: Path) -> Iterator[str]:
    """Findings of our rules, each set of environments by itself, since they name the same things."""
    for part in sorted(folder.iterdir()):
        report = check_templates(part)
        assert len(report.files.templates) > len(ENVIRONMENTS)
        yield from (f"{part.name}/{each.file}: {each}" for each in report.findings)


def by_the_others(folder: Path) -> Iterator[str]:
    """What the other two say; a template that stands there twice is read once."""
    from tests.synth.template_rules.engines import says_cfn_lint, says_validate

    texts = {
        path.read_text(encoding="utf-8"): path for path in sorted(folder.rglob("*.template.json"))
    }
    for text, path in texts.items():
        for said, rule in {**says_cfn_lint(text), **says_validate(text)}.items():
            if rule not in LEFT_OUT:
                yield f"{path.relative_to(folder)}: {said}"


if __name__ == "__main__":
    sys.exit(main())
