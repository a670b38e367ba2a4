"""A promotion as a pull request: pushed without a working tree, opened once, or nothing is done."""

from __future__ import annotations

import pytest

from onboarding.promotion import parse_promotion, promotion_path
from roundhouse.errors import NotReadyError, RoundhouseError
from roundhouse.gitops.branch import Branch
from roundhouse.gitops.forge.github import GitHub
from roundhouse.gitops.forge.rest import RestApi
from roundhouse.gitops.promotion_request import open_promotion_request
from roundhouse.processes import Processes
from tests.unit.roundhouse.gitops.forge.forge_server import REPOSITORY
from tests.unit.roundhouse.gitops.repository import BUDGET, git

pytestmark = pytest.mark.unit

BRANCH = "roundhouse/promote-prod"
FILE = "promotions/prod.lock.yaml"


@pytest.fixture
def remote(rungs, monkeypatch):
    """The repository's remote, a bare one, which has all of main."""
    folder = rungs.root.parent / "remote.git"
    git(rungs.root, "init", "-q", "--bare", "-b", "main", str(folder))
    git(rungs.root, "remote", "add", "origin", str(folder))
    git(rungs.root, "push", "-q", "origin", "main")
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "a")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "a@example.com")
    return folder


def forge(url):
    api = RestApi(url=url, headers={}, token_name="T", rights="r", sleep=lambda _: None)
    return GitHub(api=api, repository=REPOSITORY)


def open_request(rungs, server, promotion=None):
    prepared = promotion or rungs.prepare().promotion
    url = server if isinstance(server, str) else server.url
    return open_promotion_request(
        rungs.paths, rungs.report, prepared, "Promote a commit", forge(url), Processes()
    )


def state(rungs):
    """What must stay as it is: commit, branches, index and files."""
    commands = (("rev-parse", "HEAD"), ("branch", "--list"), ("status", "--porcelain"))
    return [git(rungs.root, *command) for command in commands]


def remote_branch(remote):
    return git(remote, "branch", "--list", "--format=%(objectname)", BRANCH)


def test_promotion_is_pushed_to_a_branch_and_its_pull_request_says_what_it_does(
    rungs, remote, server
):
    before, promotion = state(rungs), rungs.prepare().promotion
    opened = open_request(rungs, server, promotion)
    assert (opened.branch, opened.is_new) == (BRANCH, True) and state(rungs) == before
    assert git(remote, "diff", "--name-only", "main", BRANCH) == FILE
    assert git(remote, "rev-parse", f"{BRANCH}^") == git(rungs.root, "rev-parse", "HEAD")
    text = git(remote, "show", f"{BRANCH}:{FILE}")
    assert parse_promotion(promotion_path(rungs.root, "prod"), text, "prod") == promotion
    (pull,) = server.texts["pull"]
    assert (pull["head"], pull["base"], pull["title"]) == (BRANCH, "main", "Promote a commit")
    lines = pull["body"].strip().splitlines()
    assert lines[0].startswith(f"`prod` deploys commit {promotion.commit[:12]}, engines by digest")
    assert "| model-001 | dev-model-001 | ml.g5.xlarge | 100 | 50 | 2026-11-20 | 60 |" in lines
    (head,) = (line for line in lines if line.startswith("### Roundhouse · prod: "))
    assert "2 new endpoints" in head


def test_second_request_pushes_nothing_and_opens_no_other(rungs, remote, server):
    first = open_request(rungs, server)
    pushed = remote_branch(remote)
    rungs.repository.commit("an unrelated commit")
    git(rungs.root, "push", "-q", "origin", "main")
    again = open_request(rungs, server)
    assert (again.address, again.is_new, remote_branch(remote)) == (first.address, False, pushed)
    assert len(server.texts["pull"]) == 1


def test_another_promotion_replaces_the_branch_and_updates_the_pull_request(rungs, remote, server):
    open_request(rungs, server)
    rungs.repository.models.change("model-001", BUDGET)
    rungs.build()
    git(rungs.root, "push", "-q", "origin", "main")
    promotion = rungs.prepare().promotion
    assert open_request(rungs, server, promotion).is_new
    assert promotion.commit in git(remote, "show", f"{BRANCH}:{FILE}")
    assert git(remote, "rev-list", "--count", f"main..{BRANCH}") == "1"
    (pull,) = server.texts["pull"]
    assert promotion.commit[:12] in pull["body"]


@pytest.mark.parametrize(
    ("status", "exit_code"), [(403, 5), (422, 1), (500, 5), ("nothing listens", 5)]
)
@pytest.mark.parametrize("was_open", [False, True])
def test_forge_that_refuses_leaves_remote_and_files_as_they_were(
    rungs, remote, server, status, exit_code, was_open
):
    if was_open:
        open_request(rungs, server)
        rungs.repository.models.change("model-001", BUDGET)
        rungs.build()
        git(rungs.root, "push", "-q", "origin", "main")
    promotion = rungs.prepare().promotion
    before = (state(rungs), remote_branch(remote))
    server.responses += [(status, {}, '{"message": "no"}')] * 9
    url = "http://127.0.0.1:9" if isinstance(status, str) else server.url
    with pytest.raises(RoundhouseError) as refused:
        open_request(rungs, url, promotion)
    assert refused.value.exit_code == exit_code and "\n" not in str(refused.value)
    assert (state(rungs), remote_branch(remote)) == before


def test_push_that_the_remote_refuses_is_one_sentence_and_no_request_reaches_the_forge(
    rungs, remote, server
):
    hook = remote / "hooks" / "pre-receive"
    hook.write_text("#!/bin/sh\necho no pushes here\nexit 1\n")
    hook.chmod(0o755)
    before = state(rungs)
    with pytest.raises(NotReadyError) as refused:
        open_request(rungs, server)
    assert str(refused.value).startswith(f"git push for branch {BRANCH} of origin failed: ")
    assert "\n" not in str(refused.value)
    assert (state(rungs), server.requests, remote_branch(remote)) == (before, [], "")


def test_branch_that_moved_meanwhile_is_not_replaced(rungs, remote, server):
    open_request(rungs, server)
    branch = Branch(name=BRANCH, folder=rungs.root, run=Processes())
    head = git(rungs.root, "rev-parse", "HEAD")
    pushed = remote_branch(remote)
    with pytest.raises(NotReadyError, match="git push for branch"):
        branch.replace(head, branch.commit({FILE: "a"}, "a", parent=head))
    assert remote_branch(remote) == pushed


def test_refuses_a_repository_without_a_remote_and_hides_its_password(rungs, server):
    promotion = rungs.prepare().promotion
    with pytest.raises(NotReadyError, match="git ls-remote for branch"):
        open_request(rungs, server, promotion)
    git(rungs.root, "remote", "add", "origin", "http://user:secret@127.0.0.1:9/a.git")
    with pytest.raises(NotReadyError) as refused:
        open_request(rungs, server, promotion)
    assert "secret" not in str(refused.value)
