"""Templates of a folder: nested assemblies with their stacks, and files that are something else."""

from __future__ import annotations

import json
import os

import pytest

from template_rules.intrinsics import Stack
from template_rules.read import read_templates

pytestmark = pytest.mark.unit

TEMPLATE = '{"Resources": {"A": {"Type": "AWS::SQS::Queue"}}}'


def manifest(**artifacts):
    return json.dumps({"version": "1", "artifacts": artifacts})


def stack(file, environment, *dependencies):
    return {
        "type": "aws:cloudformation:stack",
        "environment": environment,
        "properties": {"templateFile": file, "stackName": file.split(".")[0]},
        "dependencies": list(dependencies),
    }


def test_nested_assemblies_have_stacks_and_dependencies(tmp_path):
    nested = tmp_path / "assembly-dev"
    nested.mkdir()
    here = "aws://111122223333/eu-west-1"
    (nested / "manifest.json").write_text(
        manifest(
            a=stack("a.template.json", here, "b"),
            b=stack("b.template.json", "aws://unknown-account/unknown-region"),
        )
    )
    for name in ("a", "b"):
        (nested / f"{name}.template.json").write_text(TEMPLATE)
    first, second = read_templates(tmp_path, region="us-east-1").templates
    assert first.stack == Stack(name="a", account="111122223333", region="eu-west-1")
    assert first.depends_on == {"b"}
    assert second.stack == Stack(name="b", account=None, region="us-east-1")


@pytest.mark.parametrize("text", ["{", "[]", '{"artifacts": [1]}', '{"artifacts": {"a": 1}}'])
def test_broken_manifest_leaves_the_stack_unknown(tmp_path, text):
    (tmp_path / "manifest.json").write_text(text)
    (tmp_path / "a.template.json").write_text(TEMPLATE)
    assert read_templates(tmp_path).templates[0].stack == Stack()


def test_pipe_is_never_waited_for(tmp_path):
    os.mkfifo(tmp_path / "a.template.json")
    (fault,) = read_templates(tmp_path).faults
    assert "no regular file" in fault[1]


def test_yaml_and_single_files_are_read(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text(
        "Resources: {A: {Type: AWS::SNS::Topic, Properties: {TopicName: !Sub '${AWS::Region}'}}}"
    )
    (template,) = read_templates(path).templates
    assert template.resources["A"].name == "\0AWS::Region\0"


def test_other_files_are_left_out_with_the_reason(tmp_path):
    (tmp_path / "notes.yaml").write_text("a: 1")
    (tmp_path / "asset.1.json").write_text(TEMPLATE)
    files = read_templates(tmp_path)
    assert [name for name, _ in files.skipped] == ["notes.yaml"]
    assert files.templates == []


def test_templates_of_an_earlier_synthesis_are_left_out_and_nested_stacks_are_not(tmp_path):
    here = "aws://111122223333/eu-west-1"
    assets = {"type": "cdk:asset-manifest", "properties": {"file": "a.assets.json"}}
    (tmp_path / "manifest.json").write_text(manifest(a=stack("a.template.json", here), b=assets))
    source = {"path": "inner.nested.template.json", "packaging": "file"}
    (tmp_path / "a.assets.json").write_text(json.dumps({"files": {"1": {"source": source}}}))
    for name in ("a", "inner.nested", "earlier"):
        (tmp_path / f"{name}.template.json").write_text(TEMPLATE)
    files = read_templates(tmp_path)
    names = [template.file for template in files.templates]
    assert names == ["a.template.json", "inner.nested.template.json"]
    ((name, reason),) = files.skipped
    assert name == "earlier.template.json" and "earlier synthesis" in reason
    (alone,) = read_templates(tmp_path / name).templates
    assert alone.file == name
