"""Every single fault is refused by a rule of ours, by name; the template without it is not."""

from __future__ import annotations

import pytest

from template_rules.checking import checked
from template_rules.template import Template
from tests.synth.template_rules.mutations import MUTATIONS

pytestmark = pytest.mark.synth


def findings(document):
    return checked([Template("base.template.json", document)]).findings


def test_base_is_large_and_clean(document):
    types = {each["Type"] for each in document["Resources"].values()}
    assert len(document["Resources"]) >= 39
    assert len(types) >= 18
    assert [str(each) for each in findings(document)] == []


def test_mutations_are_the_33_of_the_facts():
    assert len({each.name for each in MUTATIONS}) == len(MUTATIONS) == 33


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda each: each.name)
def test_refuses_each_mutation(mutation, document):
    found = [each for each in findings(mutation.of(document)) if each.severity == "error"]
    assert mutation.rule in {each.rule for each in found}
    assert all(each.what and each.way_out for each in found)
