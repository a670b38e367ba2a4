"""The command line, from any folder, with every error one sentence."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from roundhouse.cli import app as cli
from roundhouse.errors import RoundhouseError
from roundhouse.paths import find_paths
from roundhouse.text import choices
from tests.unit.onboarding.onnx_bytes import onnx_bytes
from tests.unit.roundhouse.engines import REPOSITORY, copied_tree

VERBS = ("init", "check", "plan", "build", "deploy", "status", "invoke", "bench", "compare")
VERBS += ("recommend", "promote", "rollback", "drift", "destroy", "prune", "up", "down", "demo")


def _run(*words: str):
    return CliRunner().invoke(cli.app, list(words), catch_exceptions=False)


def _exit(capsys, monkeypatch, *words: str) -> tuple[int, str]:
    monkeypatch.setattr(sys, "argv", ["roundhouse", *words])
    code = cli.exit_code()
    return code, capsys.readouterr().err


@pytest.fixture
def tree(tmp_path):
    return copied_tree(tmp_path / "tree")


def test_help_is_one_page_of_every_verb_and_the_exit_codes():
    text = _run("--help").output
    listed = text.split("Commands:")[1].split("Exit codes")[0].strip().splitlines()
    assert [line.split()[0] for line in listed] == list(VERBS)
    assert "Exit codes" in text and len(text.splitlines()) <= 40


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_teaches_by_an_example(verb):
    assert "Example:" in _run(verb, "--help").output


def test_help_loads_nothing_heavy():
    heavy = ("boto3", "pydantic", "yaml", "aws_cdk")
    code = f"import sys, roundhouse.cli.app; print([n for n in {heavy} if n in sys.modules])"
    command = [sys.executable, "-c", code]
    run = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY, check=True)
    assert run.stdout.strip() == "[]"


def test_check_finds_no_fault_in_this_repository_and_its_copy(tree):
    assert "no fault" in _run("check").output
    assert _run("check", "--root", str(tree)).exit_code == 0


def test_check_notes_old_prices_of_the_types_that_an_environment_names(tree):
    environment = tree / "environments" / "dev.yaml"
    environment.write_text(environment.read_text().replace("us-east-1", "us-west-2"))
    model = tree / "models" / "sentence-embedder.yaml"
    assert "prices of" not in _run("check", "--root", str(tree)).output.lower()
    model.write_text(model.read_text().replace("ml.g5.xlarge", "ml.g5.2xlarge"))
    note = "Note: dev: Prices of 2023-10-08 are "
    assert note in _run("check", "--root", str(tree)).output


def test_check_reports_every_fault_for_machines_too(tree):
    file = tree / "models" / "sentence-embedder.yaml"
    text = file.read_text().replace("precision: auto", "precison: auto")
    file.write_text(text.replace("latency_slo_ms", "latency_slo_sm"))
    result = _run("check", "--root", str(tree), "--format", "json")
    assert result.exit_code == 1
    faults = json.loads(result.output)
    assert len(faults) >= 2
    assert {"file", "line", "what", "way_out"} <= set(faults[0])
    assert "sentence-embedder.yaml" in _run("check", "--root", str(tree)).output


def test_refuses_a_folder_that_is_no_tree(tmp_path):
    with pytest.raises(RoundhouseError, match="is no onboarding tree"):
        find_paths(REPOSITORY, tmp_path)


def test_the_repository_is_found_from_any_folder_inside(tmp_path):
    assert find_paths(REPOSITORY / "roundhouse" / "dev").code == REPOSITORY
    assert find_paths(tmp_path).code == REPOSITORY


def test_status_of_an_environment_nobody_can_ask_is_unknown(tree, tmp_path):
    code = tmp_path / "code"
    shutil.copytree(tree, code)
    (code / "cdk.json").write_text("{}")
    from rich.console import Console

    from roundhouse.report import Report
    from roundhouse.status import state_of

    state = state_of(find_paths(code), Report(console=Console(quiet=True)), "local")
    assert state.cloud is None
    assert {item.lock for item in state.artifacts} == {"not built"}
    assert {item.endpoint_status for item in state.artifacts} == {"unknown"}
    assert {item.archive for item in state.artifacts} == {"unknown"}


@pytest.mark.parametrize(
    ("line", "end"),
    [
        ("deploy --env lokal", "did you mean 'local'?"),
        ("build --env dev --model sentence-embeder", "; did you mean 'sentence-embedder'?"),
        ("invoke text-shard --env dev hi", "; did you mean 'text-shared'?"),
        ("bench text-shard --env dev", "; did you mean 'text-shared'?"),
        ("bench --url http://h --model sentence-embeder", "; did you mean 'sentence-embedder'?"),
        (
            "invoke text-shared --env dev --model sentence-embedder-int hi",
            "; did you mean 'sentence-embedder-int8'?",
        ),
        ("invoke zzz --env dev hi", "allowed: sentence-embedder, text-shared."),
    ],
)
def test_refuses_an_unknown_name_with_the_nearest_one(capsys, monkeypatch, line, end):
    code, error = _exit(capsys, monkeypatch, *line.split())
    assert code == 1 and " ".join(error.split()).endswith(end) and "Traceback" not in error


def test_names_that_are_allowed_are_cut_where_they_are_many():
    message = choices("model-5", [f"model-{number:03d}" for number in range(200)])
    assert (
        message.startswith("allowed: model-000, ")
        and "and 188 more; did you mean 'model-" in message
        and len(message) < 250
    )
    assert choices("x", []) == "there is none."


def test_check_outside_says_which_folder_it_read(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert f" in {REPOSITORY}, no fault." in _run("check").output
    monkeypatch.chdir(REPOSITORY / "docs")
    assert " in " not in _run("check").output


def test_refuses_a_current_folder_that_is_gone(capsys, monkeypatch, tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    code, message = _exit(capsys, monkeypatch, "check")
    assert code == 5 and "The current folder is gone" in message


def run_into(stdout, *words):
    """Run the command as a process of its own; return its exit code and standard error."""
    command = [sys.executable, "-m", "roundhouse", *words]
    run = subprocess.run(
        command, stdout=stdout, stderr=subprocess.PIPE, text=True, cwd=REPOSITORY, check=False
    )
    return run.returncode, run.stderr


@pytest.mark.parametrize("form", ["text", "json"])
def test_refuses_a_full_disk_behind_standard_output(form):
    with Path("/dev/full").open("wb") as full:
        code, error = run_into(full, "check", "--format", form)
    assert code == 5
    assert error == (
        "No space left on device, while the command wrote its output or a file; free some, then "
        "try again.\n"
    )


@pytest.mark.parametrize("words", [("status", "--environments"), ("--help",), ("check",)])
def test_a_reader_that_has_enough_changes_no_exit_code(words):
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as gone:
        assert run_into(gone, *words) == (0, "")


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("build", "--env", "lokal", "--format", "json"), 1, "did you mean 'local'?"),
        (("build", "--format=json"), 2, "Wrong usage"),
        (("invoke", "text-shared", "--env", "dev", "--format", "json"), 1, "name one with --model"),
    ],
)
def test_an_early_fault_is_a_json_document_where_json_is_wanted(
    capsys, monkeypatch, words, code, message
):
    monkeypatch.setattr(sys, "argv", ["roundhouse", *words])
    monkeypatch.setattr("roundhouse.report.printed_documents", [])
    assert cli.exit_code() == code
    document = json.loads(capsys.readouterr().out)
    assert document["exit_code"] == code and message in document["error"]


def test_init_names_the_tree_in_its_next_command(tree):
    (tree / "models/data/net.onnx").write_bytes(onnx_bytes({"x": (1, (None, 4))}))
    words = ("init", "my-net", "--onnx", "models/data/net.onnx", "--root", str(tree))
    result = _run(*words)
    output = " ".join(result.output.split())
    assert result.exit_code == 0 and f"`roundhouse check --root {tree}`" in output
    assert all(name in output for name in ("my-net.yaml", "my-net-validation.npz", "local.yaml"))
    first = (tree / "models" / "my-net.yaml").read_text().splitlines()[0]
    assert (tree / "models" / first.split("$schema=")[1]).resolve().is_file()
