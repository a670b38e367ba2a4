"""The document's comparison is what the engines say; cfn-lint, which takes half a second each, on a
few faults only.
"""

from __future__ import annotations

import pytest

from tests.synth.template_rules.engines import ENGINES
from tests.synth.template_rules.mutations import MUTATIONS
from tests.synth.template_rules.table import DOCUMENT, RULES, TABLE, rules_table, with_section

pytestmark = pytest.mark.synth

SLOW = ("bad instance type", "MinCapacity > MaxCapacity", "misspelt IAM action")


def written():
    """Mutation -> engine -> rules, as the document says."""
    text = (
        DOCUMENT.read_text(encoding="utf-8")
        .split("<!-- comparison: begin, generated -->")[1]
        .split("<!-- comparison: end -->")[0]
    )
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.strip().splitlines()
    ]
    return {row[0]: dict(zip(ENGINES, row[1:], strict=True)) for row in rows[2:]}


@pytest.mark.parametrize("engine", ENGINES)
def test_comparison_is_what_the_engine_says(engine, document):
    before, table = ENGINES[engine](document), written()
    for mutation in MUTATIONS:
        if engine == "cfn-lint" and mutation.name not in SLOW:
            continue
        found = {
            rule
            for said, rule in ENGINES[engine](mutation.of(document)).items()
            if said not in before
        }
        cell = table[mutation.name][engine]
        assert (cell != "-") == bool(found), mutation.name
        assert engine != "our rules" or mutation.rule in found & set(cell.split(", ")), (
            mutation.name
        )


def test_our_rules_find_every_fault_and_the_others_do_not():
    (sums,) = [row for name, row in written().items() if name.startswith("**found")]
    assert sums["our rules"] == f"**{len(MUTATIONS)}**"
    assert all(
        int(sums[name].strip("*")) < len(MUTATIONS) for name in ENGINES if name != "our rules"
    )


def test_rules_of_the_document_are_the_rules():
    text = DOCUMENT.read_text(encoding="utf-8")
    assert with_section(text, RULES, rules_table()) == text
    assert with_section(text, TABLE, "another") != text
