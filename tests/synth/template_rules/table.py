"""Which engine finds which fault: `python -m tests.synth.template_rules.table --write` writes it
into docs/template-rules.md.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from template_rules.rule import ChangeRule, RuleFacts, TogetherRule
from template_rules.rules import all_rules

ROOT = Path(__file__).resolve().parents[3]
DOCUMENT = ROOT / "docs" / "template-rules.md"
TABLE, RULES = "comparison", "rules"
Found = Mapping[str, Mapping[str, set[str]]]
"""Mutation -> engine -> the rules that find it."""


def main(arguments: list[str] | None = None) -> int:
    """Exit code 1 when the document differs and was not to be written."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--write", action="store_true", help="write the document; otherwise it is only compared"
    )
    write = parser.parse_args(arguments).write
    before = DOCUMENT.read_text(encoding="utf-8")
    after = with_section(
        with_section(before, RULES, rules_table()), TABLE, comparison_table(measured())
    )
    if write:
        DOCUMENT.write_text(after, encoding="utf-8")
    elif before != after:
        print(
            "docs/template-rules.md is old; `python -m tests.synth.template_rules.table --write`.",
            file=sys.stderr,
        )
        return 1
    return 0


def measured() -> Found:
    """Every engine on every mutation; about twenty seconds, nearly all of them cfn-lint's."""
    os.environ.setdefault("CDK_VALIDATION", "false")
    os.environ.setdefault("JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION", "20")
    from tests.synth.template_rules.base import base
    from tests.synth.template_rules.engines import ENGINES
    from tests.synth.template_rules.mutations import MUTATIONS

    with tempfile.TemporaryDirectory() as folder:
        sound = base(Path(folder))
    before = {name: engine(sound) for name, engine in ENGINES.items()}
    return {
        mutation.name: {
            name: {
                rule
                for said, rule in engine(mutation.of(sound)).items()
                if said not in before[name]
            }
            for name, engine in ENGINES.items()
        }
        for mutation in MUTATIONS
    }


def comparison_table(found: Found) -> str:
    """One row a fault; a cell holds the rules that find it."""
    engines = list(next(iter(found.values())))
    versions = {
        "our rules": "",
        "cfn-lint": f" {version('cfn-lint')}",
        "cloudformation-validate": f" {version('cloudformation-validate')}",
    }
    sums = [sum(bool(rows[engine]) for rows in found.values()) for engine in engines]
    lines = [
        f"| Fault | {' | '.join(f'{engine}{versions[engine]}' for engine in engines)} |",
        "|---|" + "---|" * len(engines),
    ]
    lines += [
        f"| {name} | {' | '.join(_cell(rows[engine]) for engine in engines)} |"
        for name, rows in found.items()
    ]
    return "\n".join(
        [*lines, f"| **found, of {len(found)}** | {' | '.join(f'**{each}**' for each in sums)} |"]
    )


def rules_table() -> str:
    """One row a rule."""
    lines = ["| Rule | | What holds |", "|---|---|---|"]
    return "\n".join(
        [
            *lines,
            *(
                f"| {each.id} | {each.severity} | {each.sentence}{_looks_at(each)} |"
                for each in all_rules()
            ),
        ]
    )


def with_section(text: str, name: str, content: str) -> str:
    """The document with what stands between a section's two marks replaced."""
    begin, end = f"<!-- {name}: begin, generated -->", f"<!-- {name}: end -->"
    head, rest = text.split(begin, 1)
    return f"{head}{begin}\n{content}\n{end}{rest.split(end, 1)[1]}"


def _looks_at(rule: RuleFacts) -> str:
    if isinstance(rule, ChangeRule):
        return " (with `--previous`)"
    return " (over all templates)" if isinstance(rule, TogetherRule) else ""


def _cell(rules: set[str]) -> str:
    return ", ".join(sorted(rules)) or "-"


if __name__ == "__main__":
    sys.exit(main())
