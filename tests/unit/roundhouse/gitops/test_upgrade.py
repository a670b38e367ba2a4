"""An upgrade is a branch that is continued, with the engines that it rebuilds; nothing is lost."""

from __future__ import annotations

import json
import re

import pytest
import yaml
from typer.testing import CliRunner

from onboarding.fault import FaultsError
from onboarding.manifest import BuilderRecord
from roundhouse.cli.app import app
from roundhouse.errors import NotReadyError, UsageError
from roundhouse.gitops.branch import Branch
from roundhouse.gitops.platform_upgrade import PLATFORMS
from roundhouse.gitops.upgrade import engine_total, pull_request_body, upgrade
from roundhouse.paths import find_paths
from roundhouse.processes import Processes
from tests.fixtures.many_models import many_models, measured_entry
from tests.local_cloud.repository_copy import copy_repository
from tests.unit.roundhouse.gitops.forge.test_forge import variables
from tests.unit.roundhouse.gitops.repository import ROOT, git
from tests.unit.roundhouse.gitops.test_platform_upgrade import TODAY, facts, sdk

pytestmark = pytest.mark.unit

BRANCH = "roundhouse/upgrade-triton-26.06"
NEWER = sdk("26.05", "26.06")


def timed_entry(deployment, target):
    entry = measured_entry(deployment, target)
    builder = BuilderRecord(machine="test", built_at="2026-01-01T00:00:00Z", seconds=840.0)
    manifest = entry.manifest.model_copy(update={"builder": builder})
    return entry.model_copy(update={"manifest": manifest})


@pytest.fixture(scope="module")
def origin(tmp_path_factory):
    """The repository with two built models in dev, whose user commits as themselves."""
    folder = tmp_path_factory.mktemp("origin") / "repository"
    many_models(ROOT, folder, 2, environment="dev", built=timed_entry)
    copy_repository(folder, "package.json")
    git(folder, "init", "-q", "-b", "main")
    (folder / ".gitignore").write_text(".venv\n.venvs\nnode_modules\nbuild\n__pycache__\n")
    git(folder, "config", "user.name", "a")
    git(folder, "config", "user.email", "a@example.com")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "main")
    return folder


@pytest.fixture
def repository(origin, tmp_path):
    """A clone of it, which is where the command runs."""
    git(origin, "clone", "-q", str(origin), str(tmp_path / "clone"))
    for name in ("user.name", "user.email"):
        git(tmp_path / "clone", "config", name, "a@example.com")
    yield tmp_path / "clone"
    if git(origin, "branch", "--list", BRANCH):
        git(origin, "branch", "-D", BRANCH)


def run_upgrade(repository, table, **options):
    return upgrade(find_paths(repository), "dev", facts(table), TODAY, Processes(), **options)


def file_at(repository, ref, file):
    return git(repository, "show", f"{ref}:{file}")


def refuse_to_run(command, on_line=None):
    pytest.fail(f"{command} was run")


def test_nothing_newer_writes_nothing():
    result = upgrade(find_paths(ROOT), "dev", facts(sdk("26.05")), TODAY, refuse_to_run)
    assert (result.branch, result.findings, result.engines) == (None, (), ())


def test_newer_image_is_a_branch_with_the_engines_to_rebuild(
    origin, repository, server, monkeypatch
):
    result = run_upgrade(repository, NEWER, push=True)
    assert git(origin, "rev-parse", BRANCH) == result.commit
    assert "platform: triton-26.06" in file_at(repository, BRANCH, "environments/dev.yaml")
    assert [engine.model for engine in result.engines] == ["model-001", "model-002"]
    assert {cause.path for engine in result.engines for cause in engine.because} == {"platform"}
    assert engine_total(result.engines) == (
        "2 engines to rebuild: 28 minutes, 0.28 USD and 1 unknown"
    )
    assert git(repository, "status", "--porcelain") == ""
    assert len(git(repository, "worktree", "list").splitlines()) == 1
    body = pull_request_body(result)
    assert "2 engines to rebuild" in body and "| model-001 |" in body and "this branch" in body

    git(repository, "switch", "-q", "--detach", BRANCH)
    (repository / "models" / "notes.txt").write_text("what a person added\n")
    git(repository, "add", "models/notes.txt")
    git(repository, "commit", "-q", "-m", "notes")
    git(repository, "push", "-q", "origin", f"HEAD:refs/heads/{BRANCH}")
    added = git(repository, "rev-parse", "HEAD")
    git(repository, "switch", "-q", "main")

    table = repository / ".venvs/platform/lib/python3.11/site-packages/sagemaker/core"
    (table / "image_uri_config").mkdir(parents=True)
    (table / "image_uri_config/sagemaker-tritonserver.json").write_text(json.dumps(NEWER))
    monkeypatch.chdir(repository)
    for name, value in variables("github", server.url).items():
        monkeypatch.setenv(name, value)
    words = ["upgrade", "--env", "dev", "--pr", "--format", "json"]
    ended = CliRunner().invoke(app, words, catch_exceptions=False)
    again = json.loads(ended.stdout)
    assert again["commit"] == added == git(origin, "rev-parse", BRANCH)
    assert [item["key"] for item in again["engines"]] == [item.key for item in result.engines]
    (opened,) = server.texts["pull"]
    assert (opened["title"], opened["head"]) == ("Upgrade dev to triton-26.06", BRANCH)


def test_row_that_a_person_filled_in_on_the_branch_moves_the_environment(repository):
    newest = sdk("26.05", "26.09")
    first = run_upgrade(repository, newest)
    assert first.branch == "roundhouse/upgrade-triton-26.09" and first.engines == ()
    git(repository, "switch", "-q", first.branch)
    text = (repository / PLATFORMS).read_text()
    facts_of_it = {
        "tensorrt": "11.4.0.106", "trtexec_dialect": "11", "cuda": "13.4.0",
        "minimum_driver": "580",
        "inference_ami_version": "al2023-ami-sagemaker-inference-gpu-4-1",
    }  # fmt: skip
    for name, value in facts_of_it.items():
        text = re.sub(rf"{name}: null.*", f"{name}: {value}", text, count=1)
    (repository / PLATFORMS).write_text(text)
    git(repository, "commit", "-q", "-am", "NVIDIA's facts")
    with pytest.raises(UsageError, match="switch to another one"):
        run_upgrade(repository, newest)
    git(repository, "switch", "-q", "main")
    second = run_upgrade(repository, newest)
    spec = yaml.safe_load(file_at(repository, second.branch, "environments/dev.yaml"))
    assert spec["platform"] == "triton-26.09"
    assert {engine.model for engine in second.engines} == {"model-001", "model-002"}


def test_refuses_an_unknown_environment():
    with pytest.raises(FaultsError, match="dev"):
        upgrade(find_paths(ROOT), "prod", facts(NEWER), TODAY, refuse_to_run)


def test_refuses_to_overwrite_what_others_pushed(tmp_path):
    origin, clone = tmp_path / "origin", tmp_path / "clone"
    origin.mkdir()
    git(origin, "init", "-q", "-b", "main")
    git(origin, "commit", "-q", "--allow-empty", "-m", "main")
    git(origin, "clone", "-q", str(origin), str(clone))
    for name in ("user.name", "user.email"):
        git(clone, "config", name, "a@example.com")
    branch = Branch(folder=clone, name=BRANCH, run=Processes())
    head = git(clone, "rev-parse", "HEAD")
    pushed = branch.remote_commit()
    commit = branch.commit({"models/a.txt": "a"}, "a", parent=head)
    git(origin, "branch", BRANCH)
    git(clone, "commit", "-q", "--allow-empty", "-m", "theirs")
    git(clone, "push", "-q", "origin", f"HEAD:refs/heads/{BRANCH}")
    with pytest.raises(NotReadyError, match="git push for branch"):
        branch.replace(pushed, commit)
    assert git(origin, "log", "-1", "--format=%s", BRANCH) == "theirs"
