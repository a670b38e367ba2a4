"""A cloud assembly -> findings: of the files that are asked for, of each text once."""

from __future__ import annotations

import json

import pytest

from template_rules import check
from template_rules.findings import read_templates
from template_rules.intrinsics import Stack

pytestmark = pytest.mark.unit

ENDLESS = "E9405"
"""A log group that keeps its events for ever."""
HERE = "aws://111122223333/eu-west-1"


def stack(name, environment=HERE):
    properties = {"templateFile": f"{name}.template.json", "stackName": name}
    return {
        "type": "aws:cloudformation:stack",
        "environment": environment,
        "properties": properties,
    }


def write_manifest(folder, **artifacts):
    text = json.dumps({"version": "1", "artifacts": artifacts})
    (folder / "manifest.json").write_text(text, encoding="utf-8")


def write(folder, name, metadata=None, **properties):
    group = {"Type": "AWS::Logs::LogGroup", "Properties": properties, "Metadata": metadata or {}}
    text = json.dumps({"Resources": {"Group": group}})
    (folder / f"{name}.template.json").write_text(text, encoding="utf-8")


@pytest.fixture
def assembly(tmp_path):
    write_manifest(tmp_path, **{name: stack(name) for name in "abc"})
    for name in "abc":
        write(tmp_path, name, RetentionInDays=7)
    return tmp_path


def rules(findings):
    return [(item.template.removesuffix(".template.json"), item.rule) for item in findings]


def test_findings_are_those_of_the_files_that_are_named(assembly):
    for name in "ab":
        write(assembly, name)
    (assembly / "c.template.json").write_text("{", encoding="utf-8")
    write(assembly, "earlier synthesis")
    assert rules(check(assembly)) == [("a", ENDLESS), ("b", ENDLESS), ("c", "E9000")]
    assert rules(check(assembly, only={"b.template.json"})) == [("b", ENDLESS)]
    assert rules(check(assembly, only={"c.template.json"})) == [("c", "E9000")]


def test_findings_follow_the_text(assembly):
    write(assembly, "a")
    (first,) = check(assembly)
    assert check(assembly) == (first,)
    assert "events are kept, and paid for, for ever; write how long" in str(first)
    write(assembly, "a", RetentionInDays=7)
    assert check(assembly) == ()


def test_suppression_is_cfn_lints_own(assembly):
    write(assembly, "a", metadata={"cfn-lint": {"config": {"ignore_checks": [ENDLESS]}}})
    assert check(assembly) == ()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "cannot be read"),
        ('{"a": 1}', "it is no CloudFormation template"),
        ('{"Resources": {"A": {"Type": "B"}, "A": {"Type": "B"}}}', "Duplicate"),
    ],
)
def test_refuses_a_file_that_is_no_template(assembly, text, reason):
    (assembly / "a.template.json").write_text(text, encoding="utf-8")
    (finding,) = check(assembly, only={"a.template.json"})
    assert finding.rule == "E9000" and reason.lower() in finding.message.lower()


def test_assemblies_of_stages_have_stacks(tmp_path):
    stage = {"type": "cdk:cloud-assembly", "properties": {"directoryName": "assembly-dev"}}
    write_manifest(tmp_path, dev=stage)
    (tmp_path / "assembly-dev").mkdir()
    unknown = "aws://unknown-account/unknown-region"
    write_manifest(tmp_path / "assembly-dev", a=stack("a"), b=stack("b", unknown))
    for name in "ab":
        write(tmp_path / "assembly-dev", name)
    first, second = read_templates(tmp_path).templates
    assert first.file == "assembly-dev/a.template.json"
    assert first.stack == Stack(name="a", account="111122223333", region="eu-west-1")
    assert second.stack == Stack(name="b")


def test_refuses_a_folder_that_is_no_assembly(tmp_path):
    with pytest.raises(FileNotFoundError, match="no cloud assembly"):
        check(tmp_path)
