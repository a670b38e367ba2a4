"""Commands that know text generators show their plan."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from onboarding.fault import FaultsError
from onboarding.resolve import deployments, target
from onboarding.tree import read_tree
from roundhouse.cli import app as cli
from tests.unit.onboarding.text_generation.shapes import FIXTURES, generator_tree

BASE = (FIXTURES / "text_generation" / "base.yaml").read_text()
TYPES = "instance_types: [ml.g6e.2xlarge, ml.g5.12xlarge, ml.g5.2xlarge]"


@pytest.fixture
def root(tmp_path) -> Path:
    text = BASE.replace("instance_types: [ml.g6e.2xlarge]", TYPES)
    folder = generator_tree(tmp_path, text)
    git = ["git", "-C", str(folder), "-c", "user.email=a@example.com", "-c", "user.name=a"]
    for words in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-qm", "files"]):
        subprocess.run([*git, *words], check=True, capture_output=True)
    return folder


def _run(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli.app, list(words))
    return result.exit_code, f"{result.output}{result.exception or ''}"


def test_check_counts_a_generator_and_shows_its_plan(root):
    code, text = _run("check", "--root", str(root))
    assert code == 0 and "no fault" in text
    assert "cloud: text generator 'chat': 1 x ml.g6e.2xlarge, bf16, tensor parallel 1" in text


def test_plan_shows_what_would_serve_and_why_nothing_else(root):
    _, text = _run("plan", "--env", "cloud", "--root", str(root))
    assert "Text generation" in text and "Not chosen for text generation" in text
    assert "Checkpoints of text generators" in text and "not built" in text


def test_plan_is_json_on_request(root):
    _, text = _run("plan", "--env", "cloud", "--root", str(root), "--format", "json")
    document, _ = json.JSONDecoder().raw_decode(text)
    (plan,) = document["environments"][0]["text_generation"]
    assert plan["model"] == "chat" and plan["chosen"]["instance_type"] == "ml.g6e.2xlarge"
    reasons = {item["instance_type"]: item["reason"] for item in plan["others"]}
    assert reasons.keys() == {"ml.g5.2xlarge", "ml.g5.12xlarge"}


def test_generator_has_no_engine(root):
    tree = read_tree(root)
    assert deployments(tree, "cloud", ("chat",)) == ()
    with pytest.raises(FaultsError, match="'chat' is a text generator, which has checkpoints"):
        target(tree, "cloud", "chat")
