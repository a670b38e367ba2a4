"""Bad input of `roundhouse compare`: one sentence with the way out, before anything is asked."""

from __future__ import annotations

import json
import sys

import pytest

from roundhouse import report
from roundhouse.cli import app as cli
from tests.unit.roundhouse.engines import copied_tree

NUMBERS = ",".join(map(str, range(1, 101)))


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    return copied_tree(tmp_path_factory.mktemp("compare") / "tree")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--demand", "0"), "--demand 0: comes to 0 requests a second; allowed is more than 0"),
        (("--demand", "many"), "--demand many: write requests and their time, such as 30000/min"),
        (("--axes", ""), "--axes: names nothing that varies; give one, such as precision"),
        (("--axes", "precision=,"), "--axes precision: has no value; give one, or leave it out"),
        (("--axes", "colour=red"), "--axes colour: no such axis; "),
        (("--axes", "instance_type"), "give the types, instance_type=TYPE,TYPE"),
        (("--axes", "precision=fp17"), "--axes precision=fp17: not known; "),
        (("--axes", "colour"), "--axes colour: no such axis; "),
        (("--axes", "runtime=torch"), "--axes runtime=torch: not known; "),
        (("--axes", "batching=maybe"), "--axes batching=maybe: not known; "),
        (("--axes", "instances=0"), "--axes instances=0: engines at once on one GPU"),
        (
            ("--axes", f"instances={NUMBERS}", "--axes", "precision=fp32,int8"),
            "the grid has 200 cells, and each is built, deployed and loaded; at most 64",
        ),
        (
            ("--axes", "instance_type=ml.p5.4xlarge"),
            "--axes instance_type=ml.p5.4xlarge: SageMaker does not host it in us-east-1, only in "
            "ap-northeast-1",
        ),
        (("--axes", "instance_type=ml.g5.xxl"), "--axes instance_type=ml.g5.xxl: no such type; "),
        (("--slo", "0"), "--slo"),
    ],
)
def test_refuses_input_that_no_comparison_has(tree, capsys, monkeypatch, words, sentence):
    before = {path: path.read_bytes() for path in tree.rglob("*.yaml")}
    command = ("compare", "sentence-embedder", "--env", "dev", "--root", str(tree), *words)
    monkeypatch.setattr(sys, "argv", ["roundhouse", *command])
    assert cli.exit_code() == 2
    error = capsys.readouterr().err
    assert sentence in " ".join(error.split()) and "Traceback" not in error
    assert {path: path.read_bytes() for path in tree.rglob("*.yaml")} == before


def test_refuses_a_model_and_an_environment_that_are_not_there(tree, capsys, monkeypatch):
    for model, env, sentence in (
        ("embedder", "dev", "embedder: no such model in environment dev; "),
        ("sentence-embedder", "live", "--env live: no such environment; "),
    ):
        command = ("compare", model, "--env", env, "--root", str(tree))
        monkeypatch.setattr(sys, "argv", ["roundhouse", *command])
        assert cli.exit_code() == 2
        assert sentence in capsys.readouterr().err


def test_refuses_a_dry_run_of_candidates_that_check_refuses(tree, capsys, monkeypatch):
    """FP8 on an A10G; one run after the other, as both write the same tree of candidates."""
    for form in ("text", "json"):
        # A process of the command's own has printed no document before.
        monkeypatch.setattr(report, "printed_documents", [])
        axes = ("--axes", "precision=fp8", "--axes", "instances", "--format", form)
        place = ("--env", "dev", "--root", str(tree))
        command = ("compare", "sentence-embedder", *place, *axes, "--dry-run")
        monkeypatch.setattr(sys, "argv", ["roundhouse", *command])
        assert cli.exit_code() == 1
        shown = capsys.readouterr()
        assert "`check` refuses every candidate, so nothing is built; fp8-x1: " in shown.err
        assert json.loads(shown.out)["exit_code"] == 1 if form == "json" else not shown.out
