"""Every older single fault is refused; the template without it is not."""

from __future__ import annotations

import copy

import pytest

from template_rules.findings import check_files
from template_rules.intrinsics import Stack
from template_rules.read import TemplateFiles
from template_rules.templates import Template
from tests.synth.template_rules.base import base
from tests.synth.template_rules.mutations import MUTATIONS

pytestmark = pytest.mark.synth

STACK = Stack(name="dev", account="111122223333", region="us-east-1")


@pytest.fixture(scope="module")
def document(tmp_path_factory):
    return base(tmp_path_factory.mktemp("base"))


def errors(document):
    files = TemplateFiles(templates=[Template("base.template.json", document, stack=STACK)])
    return [str(finding) for finding in check_files(files) if finding.severity == "error"]


def test_base_is_large_and_clean(document):
    types = {resource["Type"] for resource in document["Resources"].values()}
    assert len(document["Resources"]) >= 39
    assert len(types) >= 18
    assert errors(document) == []


def test_mutations_are_33():
    assert len(MUTATIONS) == 33


@pytest.mark.parametrize("name", MUTATIONS)
def test_refuses_mutation(name, document):
    changed = copy.deepcopy(document)
    MUTATIONS[name](changed)
    assert errors(changed)
