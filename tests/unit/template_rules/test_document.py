"""What is written is what is: the document's list of rules, and the data from AWS's own schemas."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from roundhouse.templates import data as template_data
from template_rules.rules import all_rules

pytestmark = pytest.mark.unit

ROOT = Path(__file__).resolve().parents[3]
RULES = ROOT / "stacks" / "template_rules"


def test_document_lists_every_rule():
    text = (ROOT / "docs" / "template-rules.md").read_text(encoding="utf-8")
    rows = {
        line.split("|")[1].strip(): line for line in text.splitlines() if line.startswith("| RH")
    }
    assert list(rows) == [each.id for each in all_rules()]
    assert all(
        each.sentence in rows[each.id] and each.severity in rows[each.id] for each in all_rules()
    )


def test_data_is_what_the_libraries_here_say():
    assert template_data.main([]) == 0


def test_data_that_differs_is_said(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(template_data, "FOLDER", tmp_path)
    assert template_data.main([]) == 1
    assert "hosting_regions.json" in capsys.readouterr().err


def test_rules_import_neither_the_cdk_nor_anything_that_reads_or_calls():
    for path in RULES.glob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        modules = [
            each.name
            for node in ast.walk(tree)
            if isinstance(node, ast.Import)
            for each in node.names
        ]
        modules += [str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        roots = {name.split(".")[0] for name in modules}
        assert (
            roots
            & {
                "aws_cdk",
                "boto3",
                "botocore",
                "cfnlint",
                "subprocess",
                "os",
                "pathlib",
                "requests",
                "roundhouse",
            }
            == set()
        ), path
