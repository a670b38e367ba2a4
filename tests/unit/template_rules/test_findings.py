"""Findings of a folder: of the files that are asked for, and of each text once."""

from __future__ import annotations

import json

import pytest

from template_rules import check

pytestmark = pytest.mark.unit

ENDLESS = "E9405"
"""A log group that keeps its events for ever."""


def write(folder, name, indent=None, **properties):
    group = {"Type": "AWS::Logs::LogGroup", "Properties": properties}
    text = json.dumps({"Resources": {"Group": group}}, indent=indent)
    (folder / f"{name}.template.json").write_text(text, encoding="utf-8")


def rules(findings):
    return [(item.template.removesuffix(".template.json"), item.rule) for item in findings]


def test_findings_are_those_of_the_files_that_are_named(tmp_path):
    for name in "ab":
        write(tmp_path, name)
    (tmp_path / "c.template.json").write_text("{", encoding="utf-8")
    assert rules(check(tmp_path)) == [("a", ENDLESS), ("b", ENDLESS), ("c", "E9000")]
    assert rules(check(tmp_path, only={"b.template.json"})) == [("b", ENDLESS)]
    assert rules(check(tmp_path, only={"c.template.json"})) == [("c", "E9000")]


def test_findings_follow_the_text(tmp_path):
    write(tmp_path, "a")
    (first,) = check(tmp_path)
    assert check(tmp_path) == (first,)
    write(tmp_path, "a", RetentionInDays=7)
    assert check(tmp_path) == ()
    write(tmp_path, "a", indent=2)
    (moved,) = check(tmp_path)
    assert (moved.rule, first.line, moved.line) == (ENDLESS, 1, 5)
