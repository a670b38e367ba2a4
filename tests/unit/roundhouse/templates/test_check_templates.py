"""`roundhouse check-templates`: any folder, every file named, every finding, one exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from roundhouse.cli.app import app
from roundhouse.errors import NotReadyError, RoundhouseError
from roundhouse.templates.check import check_templates

pytestmark = pytest.mark.unit

ROOT = Path(__file__).resolve().parents[4]
SOUND = {"Resources": {"Queue": {"Type": "AWS::SQS::Queue"}}}
BROKEN = {
    "Resources": {"Queue": {"Type": "AWS::SQS::Queue", "Properties": {"DelaySeconds": "soon"}}}
}
WARNED = {"Resources": {"Topic": {"Type": "AWS::SNS::Topic"}}}


def folder(tmp_path, **files):
    for name, content in files.items():
        path = tmp_path / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            content if isinstance(content, str) else json.dumps(content), encoding="utf-8"
        )
    return tmp_path


def run(*arguments):
    return CliRunner().invoke(app, ["check-templates", *map(str, arguments)])


def test_sound_folder_ends_with_0(tmp_path):
    result = run(
        folder(
            tmp_path, a_template_json=SOUND, b_yaml="Resources: {Queue: {Type: AWS::SQS::Queue}}"
        )
    )
    assert (result.exit_code, result.stdout) == (
        0,
        "2 templates, 0 errors, 0 warnings, 0 acknowledged.\n",
    )


def test_finding_says_everything_and_ends_with_1(tmp_path):
    result = run(folder(tmp_path, a_template_json=BROKEN))
    assert result.exit_code == 1
    assert "a.template.json\n" in result.stdout
    assert (
        "error Queue.DelaySeconds: DelaySeconds is not a whole number, given soon; allowed: a whole number; write one. [RH032]"
        in result.stdout
    )


def test_warning_ends_with_1_only_when_strict(tmp_path):
    place = folder(tmp_path, a_template_json=WARNED)
    assert run(place).exit_code == 0
    assert run(place, "--strict").exit_code == 1


def test_json_is_stable(tmp_path):
    place = folder(tmp_path, a_template_json=BROKEN, b_template_json=WARNED, notes_json={"a": 1})
    first, second = (run(place, "--format", "json") for _ in range(2))
    assert first.stdout == second.stdout
    assert first.exit_code == 1
    assert json.loads(first.stdout) == {
        "form": 1,
        "templates": 2,
        "errors": 1,
        "warnings": 1,
        "findings": [
            {
                "rule": "RH032",
                "severity": "error",
                "file": "a.template.json",
                "resource": "Queue",
                "path": "DelaySeconds",
                "what": "DelaySeconds is not a whole number",
                "value": "soon",
                "allowed": "a whole number",
                "way_out": "write one",
            },
            {
                "rule": "RH235",
                "severity": "warning",
                "file": "b.template.json",
                "resource": "Topic",
                "path": "KmsMasterKeyId",
                "what": "the topic is not encrypted",
                "value": None,
                "allowed": None,
                "way_out": "name a key whose policy lets the publishers use it, or acknowledge why not",
            },
        ],
        "acknowledged": [],
        "skipped": [
            {
                "file": "notes.json",
                "why": "it is no CloudFormation template: it has no Resources with types",
            }
        ],
    }


def test_file_may_be_named_instead_of_a_folder(tmp_path):
    folder(tmp_path, a_template_json=BROKEN, b_template_json=SOUND)
    assert run(tmp_path / "b.template.json").exit_code == 0
    assert run(tmp_path / "a.template.json").exit_code == 1


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("a_template_json", "{", "it is no JSON: line 1"),
        ("a_template_json", {"name": "a"}, "it has no Resources with types"),
        ("a_yaml", "Resources: [", "it is no YAML"),
        ("a_template_json", '{"Resources": {"A": {}, "A": {}}}', "the key A is there twice"),
    ],
)
def test_refuses_a_file_that_should_be_a_template(tmp_path, name, content, why):
    result = run(folder(tmp_path, **{name: content, "z_template_json": SOUND}))
    assert result.exit_code == 1
    assert why in result.stdout
    assert name.replace("_", ".") in result.stdout


def test_other_files_are_left_out_and_named(tmp_path):
    place = folder(
        tmp_path,
        a_template_json=SOUND,
        notes_yaml="a: [",
        cdk__asset_x_json=SOUND,
        node_modules__a_template_json="{",
    )
    (place / "image.json").write_bytes(b"\xff\xfe\xff")
    report = check_templates(place)
    assert [name for name, _ in report.files.skipped] == ["image.json", "notes.yaml"]
    assert len(report.files.templates) == 1


def test_only_what_looks_like_a_template_is_one_by_its_name_ending_in_template(tmp_path):
    place = folder(
        tmp_path,
        a_template_json=SOUND,
        nginx_conf_template="server { listen 80; }",
        serving_template="option.a=b\n",
    )
    (place / "stack.template").write_text("Resources: [", encoding="utf-8")
    report = check_templates(place)
    assert [name for name, _ in report.files.skipped] == ["nginx.conf.template", "serving.template"]
    assert [each.file for each in report.findings] == ["stack.template"]


def test_unreadable_file_is_named(tmp_path):
    place = folder(tmp_path, a_template_json=SOUND)
    (place / "b.template.json").symlink_to(place / "nowhere")
    report = check_templates(place)
    assert [(each.rule, each.file) for each in report.findings] == [("RH001", "b.template.json")]


def test_pipe_is_left_out_and_never_waited_for(tmp_path):
    place = folder(tmp_path, a_template_json=SOUND)
    os.mkfifo(place / "b.yaml")
    os.mkfifo(place / "c.template.json")
    report = check_templates(place)
    assert report.files.skipped == [("b.yaml", "it is no regular file")]
    assert [(each.rule, each.file) for each in report.findings] == [("RH001", "c.template.json")]


@pytest.mark.parametrize(
    "content",
    [
        '{"Resources": {"A": {"Type": "AWS::SQS::Queue", "x": "\\ud800"}}}',
        '{"a": ' + "9" * 5000 + "}",
    ],
)
def test_text_that_cannot_be_printed_ends_in_one_json(tmp_path, content):
    result = run(folder(tmp_path, a_template_json=content), "--format", "json")
    assert result.exit_code == 1
    assert [each["rule"] for each in json.loads(result.stdout)["findings"]] == ["RH001"]


def test_nested_assemblies_say_their_stack_account_and_region(tmp_path):
    stack = {
        "type": "aws:cloudformation:stack",
        "environment": "aws://111122223333/eu-west-1",
        "properties": {"templateFile": "a.template.json", "stackName": "dev-a"},
    }
    config = {
        "VariantName": "a",
        "ModelName": "b",
        "InstanceType": "ml.g6e.xlarge",
        "InitialInstanceCount": 1,
    }
    template = {
        "Resources": {
            "C": {
                "Type": "AWS::SageMaker::EndpointConfig",
                "Properties": {"ProductionVariants": [config]},
            }
        }
    }
    place = folder(
        tmp_path,
        manifest_json={"artifacts": {"assembly-dev": {"type": "cdk:cloud-assembly"}}},
        **{
            "assembly-dev__manifest_json": {"artifacts": {"a": stack}},
            "assembly-dev__a_template_json": template,
        },
    )
    report = check_templates(place)
    (found,) = report.files.templates
    assert (found.stack.name, found.stack.account, found.stack.region) == (
        "dev-a",
        "111122223333",
        "eu-west-1",
    )
    assert [(each.rule, each.what) for each in report.findings] == [
        ("RH120", "region eu-west-1 does not offer the instance type")
    ]


def test_broken_manifest_only_leaves_the_stack_unknown(tmp_path):
    report = check_templates(
        folder(tmp_path, manifest_json='{"artifacts": [1]}', a_template_json=SOUND)
    )
    assert report.files.templates[0].stack.region is None


def test_region_is_given_to_templates_that_do_not_say(tmp_path):
    report = check_templates(folder(tmp_path, a_template_json=SOUND), region="us-east-1")
    assert report.files.templates[0].stack.region == "us-east-1"


def bucket(name):
    kept = {"DeletionPolicy": "Retain", "UpdateReplacePolicy": "Retain"}
    return {
        "Resources": {
            name: {"Type": "AWS::KMS::Key", "Properties": {"EnableKeyRotation": True}, **kept}
        }
    }


def test_previous_version_is_found_by_file(tmp_path):
    folder(tmp_path / "before", a_template_json=bucket("Old"), b_template_json=SOUND)
    folder(tmp_path / "now", a_template_json=bucket("New"), b_template_json=SOUND)
    assert run(tmp_path / "now").exit_code == 0
    result = run(tmp_path / "now", "--previous", tmp_path / "before")
    assert result.exit_code == 1
    assert "RH282" in result.stdout


def test_previous_version_of_one_file_is_the_other_file(tmp_path):
    folder(tmp_path, old_template_json=bucket("Old"), new_template_json=bucket("New"))
    result = run(tmp_path / "new.template.json", "--previous", tmp_path / "old.template.json")
    assert "RH282" in result.stdout


def test_refuses_a_previous_version_without_templates(tmp_path):
    folder(tmp_path / "now", a_template_json=SOUND)
    (tmp_path / "before").mkdir()
    with pytest.raises(
        RoundhouseError, match=r"--previous .*before: there is no CloudFormation template here"
    ):
        check_templates(tmp_path / "now", previous=tmp_path / "before")


def test_refuses_a_previous_version_that_is_damaged(tmp_path):
    folder(tmp_path / "now", a_template_json=SOUND, b_template_json=SOUND)
    before = folder(tmp_path / "before", a_template_json=SOUND, b_template_json="{")
    with pytest.raises(
        RoundhouseError, match=r"--previous .*before: b\.template\.json: it is no JSON"
    ):
        check_templates(tmp_path / "now", previous=before)


def test_refuses_a_region_that_hosts_nothing(tmp_path):
    with pytest.raises(
        RoundhouseError,
        match=r"--region us-eats-1: SageMaker hosts nothing there; .* did you mean 'us-east-1'\?",
    ):
        check_templates(folder(tmp_path, a_template_json=SOUND), region="us-eats-1")


def test_refuses_a_place_that_is_not_there(tmp_path):
    with pytest.raises(NotReadyError, match="there is no such file or folder"):
        check_templates(tmp_path / "nowhere")


def test_refuses_a_folder_without_templates(tmp_path):
    with pytest.raises(RoundhouseError, match=r"no CloudFormation template here \(1 other file\)"):
        check_templates(folder(tmp_path, notes_json={"a": 1}))


def test_rules_are_listed(tmp_path):
    text = run("--list-rules")
    assert text.exit_code == 0
    assert "RH160  error    a minimum is at most its maximum\n" in text.stdout
    listed = json.loads(run("--list-rules", "--format", "json").stdout)
    assert {"id": "RH280", "severity": "error", "needs_previous": True}.items() <= next(
        each for each in listed if each["id"] == "RH280"
    ).items()


def test_command_line_shows_no_traceback(tmp_path):
    command = (sys.executable, "-m", "roundhouse", "check-templates", str(tmp_path / "nowhere"))
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 5
    assert "there is no such file or folder" in result.stderr
    assert "Traceback" not in result.stderr
