"""Steps of the shipped workflows that call the forge, run as they are: git, bash and a forge."""

from __future__ import annotations

import os
import subprocess

import pytest
import yaml

from tests.unit.roundhouse.engines import REPOSITORY
from tests.unit.roundhouse.gitops.plans import endpoint, plan
from tests.unit.roundhouse.gitops.repository import git

pytestmark = pytest.mark.unit

HEAD = "a" * 40


def script(workflow, step):
    """Return what a step of a workflow runs."""
    text = (REPOSITORY / ".github" / "workflows" / workflow).read_text(encoding="utf-8")
    jobs = yaml.safe_load(text)["jobs"].values()
    steps = [item for job in jobs for item in job.get("steps", ())]
    (found,) = (item["run"] for item in steps if item.get("name") == step)
    return found


class Workspace:
    """A runner's folder: `code` is this repository, `head` a clone of `origin` at a commit."""

    def __init__(self, folder, server):
        self.folder, self.server = folder, server
        self.origin, self.head = folder / "origin.git", folder / "head"
        git(folder, "init", "-q", "--bare", "-b", "main", str(self.origin))
        git(folder, "clone", "-q", str(self.origin), "head")
        self.push("main", "models/a.yaml", "a: 1\n")
        git(self.head, "switch", "-q", "-c", "change")
        self.push("change", "models/b.yaml", "b: 1\n")
        (folder / "code").symlink_to(REPOSITORY)

    def push(self, branch, file, text):
        path = self.head / file
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        git(self.head, "add", "-A")
        git(self.head, "commit", "-q", "-m", file)
        git(self.head, "push", "-q", "origin", f"HEAD:{branch}")
        return git(self.head, "rev-parse", "HEAD")

    def run(self, text, folder=".", **variables):
        forge = {"GITHUB_API_URL": self.server.url, "GITHUB_REPOSITORY": "acme/models"}
        return subprocess.run(
            ("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", text),
            cwd=self.folder / folder,
            env={**os.environ, **forge, "GITHUB_TOKEN": "t", **variables},
            capture_output=True,
            text=True,
            check=False,
        )

    def files(self, branch):
        return set(git(self.origin, "ls-tree", "-r", "--name-only", branch).split())


@pytest.fixture
def workspace(tmp_path, server):
    server.login, server.user_type = None, "Bot"
    return Workspace(tmp_path, server)


REFUSE_LINKS = (
    "roundhouse-run.yml",
    "Refuse links, which would lead outside the change's files",
)
ADOPT = ("roundhouse-request.yml", "Push the fork's head to a branch, and open its pull request")
PUSH_LOCKS = ("roundhouse-run.yml", "Push the locks, and plan the new head")


def test_locks_alone_are_pushed_on_top_of_what_came_meanwhile_and_planned(workspace):
    pinned = git(workspace.head, "rev-parse", "HEAD")
    workspace.push("change", "models/c.yaml", "c: 1\n")
    git(workspace.head, "checkout", "-q", "--detach", pinned)
    (workspace.head / "models" / "b.lock.yaml").write_text("lock: 1\n")
    (workspace.head / "models" / "other.txt").write_text("not a lock\n")
    result = workspace.run(script(*PUSH_LOCKS), BRANCH="change", ENVIRONMENT="dev")
    assert result.returncode == 0, result.stderr
    added = {"models/b.lock.yaml", "models/c.yaml"}
    assert workspace.files("change") == {"models/a.yaml", "models/b.yaml", *added}
    assert git(workspace.origin, "log", "-1", "--format=%an %s", "change") == (
        "roundhouse Locks of dev"
    )
    ((path, body),) = workspace.server.dispatches
    assert path.endswith("/workflows/roundhouse.yml/dispatches")
    assert body == {"ref": "change", "inputs": {}}


def test_build_without_a_new_lock_pushes_nothing(workspace):
    before = git(workspace.origin, "rev-parse", "change")
    result = workspace.run(script(*PUSH_LOCKS), BRANCH="change", ENVIRONMENT="dev")
    assert (result.returncode, result.stdout) == (0, "No lock changed.\n")
    assert git(workspace.origin, "rev-parse", "change") == before
    assert workspace.server.dispatches == []


def test_branch_of_shell_words_is_a_branch(workspace):
    branch = "x;touch${IFS}$(id)`id`&&a"
    git(workspace.head, "push", "-q", "origin", f"HEAD:refs/heads/{branch}")
    (workspace.head / "models" / "b.lock.yaml").write_text("lock: 1\n")
    result = workspace.run(script(*PUSH_LOCKS), BRANCH=branch, ENVIRONMENT="dev")
    assert result.returncode == 0, result.stderr
    assert "models/b.lock.yaml" in workspace.files(f"refs/heads/{branch}")
    assert workspace.server.dispatches[0][1]["ref"] == branch


def test_refuses_links(workspace):
    refuse = script(*REFUSE_LINKS)
    assert workspace.run(refuse).returncode == 0
    (workspace.head / "models" / "c.yaml").symlink_to("/proc/self/environ")
    git(workspace.head, "add", "-A")
    result = workspace.run(refuse)
    assert result.returncode == 1
    assert "models/c.yaml" in result.stderr


def test_comment_of_a_plan_is_written_to_its_pull_request_alone(workspace):
    (workspace.folder / "plan").mkdir()
    (workspace.folder / "plan" / "plan.json").write_text(plan(endpoint()).model_dump_json())
    workspace.server.add("pull", "", head={"sha": HEAD})
    write = script("roundhouse-comment.yml", "Write the comment")
    # `code` is a link: the step's `..` is the runner's folder, by its name.
    write = write.replace("../plan", str(workspace.folder / "plan"))
    result = workspace.run(write, "code", HEAD=HEAD)
    assert result.returncode == 0, result.stderr
    (comment,) = workspace.server.texts["comment"]
    assert comment["body"].startswith("<!-- roundhouse:plan -->")
    result = workspace.run(write, "code", HEAD="b" * 40)
    assert result.returncode == 1
    assert "plan that commit" in result.stderr
    assert len(workspace.server.texts["comment"]) == 1


def test_fork_is_adopted_at_the_commit_that_was_labelled(workspace):
    fork = workspace.push("refs/pull/7/head", "models/fork.yaml", "f: 1\n")
    adopt = script(*ADOPT)
    python = f"PYTHONPATH={REPOSITORY} {REPOSITORY}/.venv/bin/python"
    adopt = adopt.replace(".venv/bin/python", python)
    result = workspace.run(adopt, "head", HEAD="b" * 40, NUMBER="7")
    assert result.returncode == 1
    assert "label it again" in result.stderr
    result = workspace.run(adopt, "head", HEAD=fork, NUMBER="7")
    assert result.returncode == 0, result.stderr
    assert git(workspace.origin, "rev-parse", "adopt/7") == fork
    (pull,) = workspace.server.texts["pull"]
    assert pull["title"] == "Adopt pull request 7"
    assert [body["ref"] for _, body in workspace.server.dispatches] == ["adopt/7"]
