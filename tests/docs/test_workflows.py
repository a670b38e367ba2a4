"""The shipped workflows: GitHub's parser, their schemas and zizmor find nothing, and ours hold."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from roundhouse.cli.app import app

pytestmark = pytest.mark.docs

ROOT = Path(__file__).resolve().parents[2]
BIN = ROOT / ".venv" / "bin"
FOLDER = ROOT / ".github"
WORKFLOWS = sorted((FOLDER / "workflows").glob("*.yml"))
ACTIONS = sorted((FOLDER / "actions").glob("*/action.yml"))
GITLAB = ROOT / "docs" / "examples" / "gitlab-ci.yml"
SCHEMAS = {
    "vendor.gitlab-ci": (GITLAB, "--data-transform", "gitlab-ci"),
    "vendor.renovate": (ROOT / "renovate.json",),
}
ROUNDHOUSE = ".venv/bin/python -m roundhouse "
PIN = re.compile(r"uses: [\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$")


def output(*command):
    """Return what a program prints, and whether it found nothing."""
    result = subprocess.run(
        tuple(map(str, command)), cwd=ROOT, capture_output=True, text=True, check=False
    )
    return result.stdout + result.stderr, result.returncode == 0


def parser_errors(*files):
    text, is_clean = output("node", Path(__file__).with_name("workflow_parser.mjs"), *files)
    assert is_clean, text
    return text


def document(path):
    return yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)


def steps(path):
    found = document(path)
    jobs = found["jobs"].values() if "jobs" in found else [found["runs"]]
    return [step for job in jobs for step in job.get("steps", ())]


def scripts():
    return [
        (path.name, step["run"])
        for path in (*WORKFLOWS, *ACTIONS)
        for step in steps(path)
        if "run" in step
    ]


def commands():
    """Every call of roundhouse: its verb, and the options that it is given."""
    found = set()
    texts = [script for _, script in scripts()] + [GITLAB.read_text(encoding="utf-8")]
    for script in texts:
        for line in script.replace("\\\n", " ").splitlines():
            for call in line.split(ROUNDHOUSE)[1:]:
                verb = re.match(r"[a-z]+", call)
                assert verb, call
                found.add((verb.group(), *re.findall(r" (--[a-z-]+)", call.split(")")[0])))
    return sorted(found)


@pytest.fixture
def mutated(tmp_path):
    """Return a copy of a shipped file with one text replaced, where the tools look for it."""

    def copy(name, old, new):
        path = tmp_path / ".github" / "workflows" / name
        path.parent.mkdir(parents=True)
        text = (FOLDER / "workflows" / name).read_text(encoding="utf-8")
        assert old in text
        path.write_text(text.replace(old, new), encoding="utf-8")
        return path

    return copy


def test_githubs_parser_finds_nothing():
    assert len(WORKFLOWS) == 7
    assert parser_errors(*WORKFLOWS) == ""


@pytest.mark.parametrize(
    ("old", "new"),
    [("        with:", "        wiht:"), ("github.event.pull", "githbu.event.pull"),
     ("runs-on:", "run-on:")],
)  # fmt: skip
def test_githubs_parser_finds_a_wrong_word(mutated, old, new):
    assert new.strip(" :").split(".")[0] in parser_errors(mutated("roundhouse.yml", old, new))


@pytest.mark.parametrize(
    ("schema", "files"),
    [("vendor.github-workflows", WORKFLOWS), ("vendor.github-actions", ACTIONS)],
)
def test_schemas_find_nothing(schema, files):
    text, is_clean = output(BIN / "check-jsonschema", "--builtin-schema", schema, *files)
    assert is_clean, text


@pytest.mark.parametrize("schema", SCHEMAS)
def test_schemas_of_gitlab_and_renovate_find_nothing(schema):
    file, *options = SCHEMAS[schema]
    command = (BIN / "check-jsonschema", "--builtin-schema", schema, *options)
    text, is_clean = output(*command, file)
    assert is_clean, text


@pytest.mark.parametrize(
    ("schema", "name", "old", "new"),
    [
        ("vendor.gitlab-ci", "gitlab-ci.yml", "expire_in: 2 weeks", "expires: 2 weeks"),
        ("vendor.renovate", "renovate.json", '["github-actions", "npm"', '["github-action", 3'),
    ],
)
def test_schemas_of_gitlab_and_renovate_find_a_wrong_word(tmp_path, schema, name, old, new):
    text = SCHEMAS[schema][0].read_text(encoding="utf-8")
    assert old in text
    (tmp_path / name).write_text(text.replace(old, new), encoding="utf-8")
    options = SCHEMAS[schema][1:]
    command = (BIN / "check-jsonschema", "--builtin-schema", schema, *options)
    text, is_clean = output(*command, tmp_path / name)
    assert not is_clean
    assert new.split('"')[1 if '"' in new else 0].split(":")[0] in text


def test_schema_finds_a_wrong_word(mutated):
    path = mutated("roundhouse.yml", "timeout-minutes", "timeout-minute")
    text, is_clean = output(
        BIN / "check-jsonschema", "--builtin-schema", "vendor.github-workflows", path
    )
    assert not is_clean
    assert "timeout-minute" in text


def test_zizmor_finds_nothing():
    text, is_clean = output(BIN / "zizmor", "--offline", "--pedantic", FOLDER)
    assert is_clean, text


@pytest.mark.parametrize(
    ("name", "old", "new", "audit"),
    [
        ("roundhouse.yml", "          persist-credentials: false\n", "", "artipacked"),
        ("roundhouse-comment.yml", '"$HEAD"', "${{ github.event.workflow_run.head_branch }}",
         "template-injection"),
        ("roundhouse-main.yml", "permissions: {}", "permissions: write-all", "excessive-perm"),
    ],
)  # fmt: skip
def test_zizmor_finds_what_it_is_for(mutated, name, old, new, audit):
    text, is_clean = output(BIN / "zizmor", "--offline", "--pedantic", mutated(name, old, new))
    assert not is_clean
    assert audit in text


def test_actions_are_pinned_by_commit_with_their_version():
    lines = [
        line.strip(" -")
        for path in (*WORKFLOWS, *ACTIONS)
        for line in path.read_text(encoding="utf-8").splitlines()
        if "uses:" in line and "uses: ./" not in line
    ]
    assert len(lines) > 20
    assert [line for line in lines if not PIN.search(line)] == []


def test_one_action_has_one_commit():
    pins = {}
    for path in (*WORKFLOWS, *ACTIONS):
        for action, commit in re.findall(r"uses: ([\w./-]+)@(\w+)", path.read_text("utf-8")):
            pins.setdefault(action, set()).add(commit)
    assert {action: commits for action, commits in pins.items() if len(commits) > 1} == {}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_no_token_is_kept_and_nothing_is_expanded_in_a_script(path):
    found = document(path)
    assert found["permissions"] == {}
    for job in found["jobs"].values():
        assert "uses" in job or ("timeout-minutes" in job and "permissions" in job)
    for step in steps(path):
        assert "${{" not in step.get("run", "")
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] == "false"


def test_only_the_plan_runs_for_what_anybody_may_send_and_it_has_no_rights():
    """The job that may ask AWS runs for pull requests of this repository alone."""
    jobs = document(FOLDER / "workflows" / "roundhouse.yml")["jobs"]
    own, rights = jobs.pop("live"), {"contents": "read"}
    assert "pull_request.head.repo.full_name == github.repository" in own["if"]
    assert own["permissions"] == {**rights, "id-token": "write"}
    assert [job["permissions"] for job in jobs.values()] == [rights]
    assert "secrets." not in (FOLDER / "workflows" / "roundhouse.yml").read_text("utf-8")


def test_roles_are_assumed_by_one_file_which_roles_can_trust():
    """Build, deploy and promote; plan, and drift and prices, have roles that read."""
    roles = {
        (path.name, step["with"]["role-to-assume"].split(".")[-1].strip(" }"))
        for path in WORKFLOWS
        for step in steps(path)
        if "configure-aws-credentials" in step.get("uses", "")
    }
    assert ("roundhouse.yml", "plan") in roles
    writes = {(name, role) for name, role in roles if role not in ("drift", "plan")}
    assert writes == {("roundhouse-run.yml", role) for role in ("build", "deploy", "promote")}


def test_sessions_that_write_last_as_long_as_their_roles_allow():
    sessions = {
        step["with"]["role-to-assume"].split(".")[-1].strip(" }"): step["with"]
        for step in steps(FOLDER / "workflows" / "roundhouse-run.yml")
        if "configure-aws-credentials" in step.get("uses", "")
    }
    wanted = "${{ fromJSON(inputs.environment).session_seconds }}"
    for role in ("build", "deploy", "promote"):
        assert sessions[role].get("role-duration-seconds") == wanted, role


@pytest.mark.parametrize("command", commands(), ids=" ".join)
def test_command_of_a_workflow_has_the_options_that_it_is_given(command):
    verb, *options = command
    result = CliRunner().invoke(app, [verb, "--help"], catch_exceptions=False)
    assert result.exit_code == 0
    assert set(options) - set(re.findall(r"--[\w-]+", result.output)) == set()


def test_scripts_are_bash(tmp_path):
    assert shutil.which("bash")
    for name, script in scripts():
        text, is_clean = output("bash", "-n", "-c", script)
        assert is_clean, f"{name}: {text}"
