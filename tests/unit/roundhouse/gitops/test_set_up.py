"""The files of a repository's pipeline: written all or none, and never over somebody's changes."""

from __future__ import annotations

import pytest

from onboarding.tree import read_tree
from roundhouse.errors import NotReadyError, RoundhouseError, UsageError
from roundhouse.gitops.set_up import (
    github_steps,
    gitlab_steps,
    pipeline_environments,
    pipeline_files,
    write_pipeline,
)
from tests.unit.roundhouse.engines import REPOSITORY

pytestmark = pytest.mark.unit

OWNERS = ("@acme/platform",)


def files_below(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8")
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("forge", ["github", "gitlab"])
def test_files_are_written_once(tmp_path, forge):
    texts = pipeline_files(REPOSITORY, forge, OWNERS)
    first = write_pipeline(tmp_path, texts)
    assert set(first.written) == set(texts)
    assert files_below(tmp_path) == texts
    second = write_pipeline(tmp_path, texts)
    assert (second.written, set(second.present)) == ((), set(texts))


def test_workflows_are_those_of_this_repository():
    texts = pipeline_files(REPOSITORY, "github", OWNERS)
    workflows = {
        path.relative_to(REPOSITORY).as_posix()
        for path in (REPOSITORY / ".github" / "workflows").iterdir()
    }
    assert len(workflows) == 6
    assert workflows <= texts.keys()
    assert "/promotions/    @acme/platform" in texts[".github/CODEOWNERS"]


def test_refuses_changed_files_naming_all_and_writes_nothing(tmp_path):
    texts = pipeline_files(REPOSITORY, "github", OWNERS)
    (tmp_path / ".github").mkdir()
    (tmp_path / ".github" / "CODEOWNERS").write_text("* @other\n")
    (tmp_path / "renovate.json").mkdir()
    with pytest.raises(RoundhouseError, match=r"CODEOWNERS, renovate\.json: changed"):
        write_pipeline(tmp_path, texts)
    assert files_below(tmp_path) == {".github/CODEOWNERS": "* @other\n"}


def test_refuses_a_link_in_the_place_of_a_file(tmp_path):
    (tmp_path / "renovate.json").symlink_to(tmp_path / "nowhere")
    with pytest.raises(RoundhouseError, match=r"renovate\.json: changed"):
        write_pipeline(tmp_path, {"renovate.json": "{}"})


def test_folder_that_cannot_be_written_stays_as_it_was(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(NotReadyError, match="nothing was written"):
        write_pipeline(tmp_path, {"a.txt": "a", "file/b.txt": "b"})
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
    assert role in github
    assert role in gitlab
