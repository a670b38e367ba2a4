"""`roundhouse check-templates`: any folder, every finding, one exit code."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from roundhouse.cli.app import app
from roundhouse.cli.check_templates import findings_of
from roundhouse.errors import NotReadyError, RoundhouseError

pytestmark = pytest.mark.unit

SOUND = {
    "Resources": {"Group": {"Type": "AWS::Logs::LogGroup", "Properties": {"RetentionInDays": 7}}}
}
BROKEN = {"Resources": {"Group": {"Type": "AWS::Logs::LogGroup", "Properties": {}}}}
WARNED = {**SOUND, "Parameters": {"Unused": {"Type": "String"}}}


def folder(tmp_path, **files):
    for name, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content, indent=1)
        (tmp_path / f"{name}.template.json").write_text(text, encoding="utf-8")
    return tmp_path


def run(*arguments):
    return CliRunner().invoke(app, ["check-templates", *map(str, arguments)])


def test_sound_folder_ends_with_0(tmp_path):
    result = run(folder(tmp_path, a=SOUND, b=SOUND))
    assert (result.exit_code, result.stdout) == (0, "2 templates, 0 errors, 0 warnings.\n")


def test_finding_has_rule_line_and_way_out_and_ends_with_1(tmp_path):
    result = run(folder(tmp_path, a=BROKEN))
    assert result.exit_code == 1
    assert "a.template.json\n" in result.stdout
    assert "error Group.RetentionInDays: events are kept, and paid for, for ever" in result.stdout
    assert "write how long, such as 90 [E9405] (line" in result.stdout


def test_warning_ends_with_1_only_when_strict(tmp_path):
    path = folder(tmp_path, a=WARNED)
    assert run(path).exit_code == 0
    assert run(path, "--strict").exit_code == 1


def test_json_is_stable(tmp_path):
    path = folder(tmp_path, a=BROKEN)
    (path / "notes.json").write_text('{"a": 1}', encoding="utf-8")
    first, second = (run(path, "--format", "json") for _ in range(2))
    assert first.stdout == second.stdout
    assert first.exit_code == 1
    document = json.loads(first.stdout)
    assert {key: document[key] for key in ("form", "templates", "errors", "warnings")} == {
        "form": 2,
        "templates": 1,
        "errors": 1,
        "warnings": 0,
    }
    (finding,) = document["findings"]
    assert set(finding) == {"rule", "severity", "template", "resource", "path", "message", "line"}
    why = "it is no CloudFormation template: it has no Resources with types"
    assert document["skipped"] == [{"file": "notes.json", "why": why}]


def test_suppression_is_cfn_lints_own(tmp_path):
    metadata = {"cfn-lint": {"config": {"ignore_checks": ["E9405"]}}}
    group = {**BROKEN["Resources"]["Group"], "Metadata": metadata}
    assert run(folder(tmp_path, a={"Resources": {"Group": group}})).exit_code == 0


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "line 2"),
        ('{"a": 1}', "it is no CloudFormation template"),
        ('{"Resources": {"A": {"Type": "B"}, "A": {"Type": "B"}}}', "Duplicate"),
    ],
)
def test_refuses_a_file_that_is_no_template(tmp_path, content, reason):
    _, (finding, *_) = findings_of(folder(tmp_path, a=content))
    assert (finding.rule, finding.template) == ("E9000", "a.template.json")
    assert reason.lower() in finding.message.lower()


def test_change_is_found_by_file(tmp_path):
    before, now = tmp_path / "before", tmp_path / "now"
    for path, kind in ((before, "AWS::SQS::Queue"), (now, "AWS::Logs::LogGroup")):
        path.mkdir()
        folder(path, a={"Resources": {"Group": {**SOUND["Resources"]["Group"], "Type": kind}}})
    _, findings = findings_of(now, before)
    assert "E9805" in {finding.rule for finding in findings}


def test_refuses_a_previous_version_without_templates(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(RoundhouseError, match=r"--previous .*no CloudFormation template"):
        findings_of(folder(tmp_path, a=SOUND), tmp_path / "empty")


def test_refuses_an_unknown_region(tmp_path):
    with pytest.raises(RoundhouseError, match=r"did you mean .eu-west-1"):
        findings_of(folder(tmp_path, a=SOUND), region="eu-west1")


def test_refuses_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(NotReadyError, match="no such file or folder"):
        findings_of(tmp_path / "none")


def test_refuses_a_folder_without_templates(tmp_path):
    (tmp_path / "notes.json").write_text("{}", encoding="utf-8")
    with pytest.raises(RoundhouseError, match="1 other file"):
        findings_of(tmp_path)


def test_rules_are_listed():
    assert "E9405  A log group says how long it keeps its events." in run("--list-rules").stdout
    listed = json.loads(run("--list-rules", "--format", "json").stdout)
    assert {"E9100", "E9600", "E9700"} <= {rule["id"] for rule in listed}
