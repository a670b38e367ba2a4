"""`init --workflows`: files written all or none, and what a person sets; their environments."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from onboarding.tree import read_tree
from roundhouse.cli.app import app
from roundhouse.errors import NotReadyError, RoundhouseError, UsageError
from roundhouse.gitops.set_up import (
    github_steps,
    gitlab_steps,
    pipeline_environments,
    pipeline_files,
    write_files,
)
from tests.unit.roundhouse.engines import REPOSITORY

OWNERS = ("@acme/platform",)
LINE = "github: {repository: acme/models, repository_id: 456789, owner_id: 123456}"


def files_below(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8")
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("forge", ["github", "gitlab"])
def test_files_are_written_once(tmp_path, forge):
    texts = pipeline_files(REPOSITORY, forge, OWNERS)
    first = write_files(tmp_path, texts)
    assert set(first.written) == set(texts)
    assert files_below(tmp_path) == texts
    second = write_files(tmp_path, texts)
    assert (second.written, set(second.present)) == ((), set(texts))


def test_workflows_are_those_of_this_repository():
    texts = pipeline_files(REPOSITORY, "github", OWNERS)
    own = (REPOSITORY / ".github" / "workflows").glob("roundhouse*.yml")
    workflows = {path.relative_to(REPOSITORY).as_posix() for path in own}
    assert len(workflows) == 6 and workflows <= texts.keys()
    assert "/promotions/    @acme/platform" in texts[".github/CODEOWNERS"]


def test_refuses_changed_files_naming_all_and_writes_nothing(tmp_path):
    texts = pipeline_files(REPOSITORY, "github", OWNERS)
    (tmp_path / ".github").mkdir()
    (tmp_path / ".github" / "CODEOWNERS").write_text("* @other\n")
    (tmp_path / "renovate.json").symlink_to(tmp_path / "nowhere")
    with pytest.raises(RoundhouseError, match=r"CODEOWNERS, renovate\.json: changed"):
        write_files(tmp_path, texts)
    assert files_below(tmp_path) == {".github/CODEOWNERS": "* @other\n"}


def test_folder_that_cannot_be_written_stays_as_it_was(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(NotReadyError, match=r"file/b.txt: cannot be written .*nothing was written"):
        write_files(tmp_path, {"a.txt": "a", "file/b.txt": "b"})
    assert files_below(tmp_path) == {"file": "x"}


@pytest.mark.parametrize("owner", ["acme", "@", "@a b", "@acme/*", "a@b", "@a\n* @b", "#x"])
def test_refuses_what_is_no_owner(owner):
    with pytest.raises(UsageError, match="--owners"):
        pipeline_files(REPOSITORY, "github", [owner])


def test_owners_are_users_teams_and_addresses():
    owners = ("@one", "@acme/team", "@group/sub/team", "a.b@example.com")
    assert " ".join(owners) in pipeline_files(REPOSITORY, "gitlab", owners)[".gitlab/CODEOWNERS"]


def test_steps_name_environments_and_roles():
    environments = pipeline_environments(read_tree(REPOSITORY))
    role = "arn:aws:iam::111122223333:role/roundhouse-dev-deploy"
    github, gitlab = "\n".join(github_steps(environments)), "\n".join(gitlab_steps(environments))
    assert "GitHub environment dev and dev-build" in github
    assert "allow GitHub Actions to create pull requests" in github
    assert role in github and role in gitlab


@pytest.fixture
def environments(tmp_path):
    """Write environments, given as name -> more lines; return them by name."""

    def write(texts):
        (tmp_path / "environments").mkdir()
        for name, more in texts.items():
            text = f'name: {name}\naccount: "111122223333"\nregion: eu-west-1\n'
            path = tmp_path / "environments" / f"{name}.yaml"
            path.write_text(f"{text}platform: triton-26.05\n{more}")
        return read_tree(tmp_path)

    return write


def test_init_prints_the_lines_to_add_and_edits_no_environment(environments, tmp_path):
    environments({"dev": "", "prod": f"{LINE}\n"})
    path = tmp_path / "environments" / "dev.yaml"
    before = path.read_text()
    words = ["init", "--workflows", "github", "--owners", "@acme/a", "--root", str(tmp_path)]
    shown = " ".join(CliRunner().invoke(app, words).output.split())
    assert "environments/dev.yaml: add `github: {repository: OWNER/NAME, repository_id: ID" in shown
    assert "gh api repos/OWNER/NAME --jq" in shown and "prod.yaml: add" not in shown
    assert path.read_text() == before


@pytest.mark.parametrize(
    ("sources", "order"),
    [
        ({"a-prod": "staging", "staging": "z-dev", "z-dev": None}, ["z-dev", "staging", "a-prod"]),
        ({"local": None, "dev": None}, ["dev"]),
        ({"a": "b", "b": "a"}, None),
    ],
    ids=["source first", "no local cloud", "a circle ends"],
)
def test_environments_of_workflows_come_after_those_they_receive_from(environments, sources, order):
    tree = environments(
        {name: f"promotes_from: {source}\n" if source else "" for name, source in sources.items()}
    )
    found = [item.name for item in pipeline_environments(tree)]
    assert found == order if order else set(found) <= {"a", "b"}


def test_environments_are_listed_for_workflows(environments, tmp_path):
    environments({"local": "", "dev": "", "prod": f"promotes_from: dev\n{LINE}\n"})
    words = ["status", "--environments", "--root", str(tmp_path)]
    assert CliRunner().invoke(app, words).output.split() == ["dev", "prod"]
    dev, prod = json.loads(CliRunner().invoke(app, [*words, "--format", "json"]).output)
    assert (dev["has_roles"], prod["has_roles"], dev["region"]) == (False, True, "eu-west-1")
    assert dev["roles"]["build"] == "arn:aws:iam::111122223333:role/roundhouse-dev-build"
    assert 3600 <= dev["session_seconds"] <= 21_600
    assert CliRunner().invoke(app, [*words, "--env", "prod"]).output.split() == ["prod"]
    for name in ("local", "none"):
        with pytest.raises(RoundhouseError, match=f"No environment '{name}' that workflows deploy"):
            CliRunner().invoke(app, [*words, "--env", name], catch_exceptions=False)
