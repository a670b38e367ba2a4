"""No finding on templates of our own: shipped environments, and endpoints of every kind."""

from __future__ import annotations

import json

import pytest

from template_rules import check
from template_rules.findings import check_files
from tests.synth.template_rules.own import own_findings, synthesize, validated
from tests.synth.template_rules.stacks import ASSEMBLIES, read

pytestmark = pytest.mark.synth


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("own")
    synthesize(path)
    return path


def test_shipped_environments_have_no_finding(folder):
    assert list(own_findings(folder)) == []


def test_shipped_environments_are_valid(folder):
    assert list(validated(folder)) == []


@pytest.mark.parametrize("name", ASSEMBLIES)
def test_endpoints_of_every_kind_have_no_finding(name):
    assert [str(finding) for finding in check_files(read(name))] == []


def test_refuses_a_fault_of_a_type(folder, tmp_path):
    (source,) = (folder / "locked" / "dev").rglob("*sentenceembedder*.template.json")
    document = json.loads(source.read_text(encoding="utf-8"))
    for resource in document["Resources"].values():
        if resource["Type"] == "AWS::SageMaker::EndpointConfig":
            variant = resource["Properties"]["ProductionVariants"][0]
            variant["InitialInstanceCount"] = "one"
    (tmp_path / "a.template.json").write_text(json.dumps(document), encoding="utf-8")
    assert "E3012" in {finding.rule for finding in check(tmp_path)}
    assert "F3012" in " ".join(validated(tmp_path))
