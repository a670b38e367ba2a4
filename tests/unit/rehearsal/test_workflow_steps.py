"""Steps of the shipped workflows that call git and gh, run as they are against the forge."""

from __future__ import annotations

import json
import os
import subprocess

import pytest
import yaml

from tests.rehearsal.forge.records import Job
from tests.rehearsal.forge.server import API, running_forge
from tests.rehearsal.runner import BIN
from tests.unit.roundhouse.engines import REPOSITORY
from tests.unit.roundhouse.gitops.plans import endpoint, plan
from tests.unit.roundhouse.gitops.repository import git

pytestmark = pytest.mark.unit

WORKFLOW = "on:\n  workflow_dispatch:\n"
PYTHON = f"PYTHONPATH={REPOSITORY} {REPOSITORY}/.venv/bin/python"
RIGHTS = ("actions", "contents", "issues", "pull-requests")


def script(file, step):
    """Return what a step of a workflow, or of an action, runs."""
    document = yaml.safe_load((REPOSITORY / ".github" / file).read_text(encoding="utf-8"))
    jobs = document["jobs"].values() if "jobs" in document else [document["runs"]]
    steps = [item for job in jobs for item in job.get("steps", ())]
    (found,) = (item["run"] for item in steps if item.get("name") == step)
    return found.replace(".venv/bin/python", PYTHON)


class Workspace:
    """A runner's folder: `code` is a clone of main, `head` one of a branch `change`.

    acme owns acme/models, mallory a fork of it; `bot` is the token of a workflow's job.
    """

    def __init__(self, folder, forge):
        self.folder, self.forge = folder, forge
        tokens = {name: forge.add_user(name) for name in ("acme", "mallory")}
        self.people = {name: forge.tokens[token] for name, token in tokens.items()}
        self.repository = forge.add_repository("acme", "models")
        _, self.bot = forge.add_run(
            repository=self.repository,
            workflow=".github/workflows/x.yml",
            name="x",
            event="push",
            ref="refs/heads/main",
            sha="",
            actor=self.people["acme"].user,
        )
        forge.tokens[self.bot].run.job = Job(
            name="j",
            permissions=dict.fromkeys(RIGHTS, "write"),
            workflow=".github/workflows/run.yml",
            workflow_ref="refs/heads/main",
        )
        self.head = self.clone("head", tokens["acme"])
        self.push("main", ".github/workflows/roundhouse.yml", WORKFLOW)
        self.push("main", "models/a.yaml", "a: 1\n")
        forge.add_repository("mallory", "models", parent="acme/models")
        self.fork = self.clone("fork", tokens["mallory"], "mallory/models")
        self.clone("code", self.bot)
        git(self.head, "remote", "set-url", "origin", self.address(self.bot))
        git(self.head, "switch", "-q", "-c", "change")
        self.push("change", "models/b.yaml", "b: 1\n")
        forge.events.clear()

    def address(self, token, name="acme/models"):
        return f"{self.forge.url.replace('//', f'//x-access-token:{token}@')}/{name}.git"

    def clone(self, folder, token, name="acme/models"):
        git(self.folder, "clone", "-q", self.address(token, name), folder)
        return self.folder / folder

    def push(self, branch, file, text, folder=None):
        folder = self.head if folder is None else folder
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        git(folder, "add", "-A")
        git(folder, "commit", "-q", "-m", file)
        git(folder, "push", "-q", "origin", f"HEAD:{branch}")
        return git(folder, "rev-parse", "HEAD")

    def run(self, text, folder=".", **variables):
        """Run a step as the workflow's bot."""
        given = {
            "GH_REPO": "acme/models",
            "GH_TOKEN": self.bot,
            "GITHUB_API_URL": f"{self.forge.url}{API}",
            "GITHUB_OUTPUT": str(self.folder / "output"),
            "PATH": f"{BIN}:{os.environ['PATH']}",
        }
        return subprocess.run(
            ("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", text),
            cwd=self.folder / folder,
            env={**os.environ, **given, **variables},
            capture_output=True,
            text=True,
            check=False,
        )

    def tip(self, branch):
        return self.repository.git.commit(f"refs/heads/{branch}")

    def files(self, branch):
        return set(self.repository.git.run("ls-tree", "-r", "--name-only", branch).split())

    def dispatched(self):
        """The branches that workflows were started on."""
        return [item.ref for item in self.forge.events if item.name == "workflow_dispatch"]


@pytest.fixture
def workspace(tmp_path):
    with running_forge(tmp_path / "forge") as forge:
        (tmp_path / "runner").mkdir()
        yield Workspace(tmp_path / "runner", forge)


REFUSE_LINKS = (
    "workflows/roundhouse-run.yml",
    "Refuse links, which would lead outside the change's files",
)
ADOPT = ("workflows/roundhouse-request.yml", "Push the fork's head to a branch")
PUSH_LOCKS = ("workflows/roundhouse-run.yml", "Push the locks, and plan the new head")
COMMENT = ("workflows/roundhouse-comment.yml", "Write the comment")
DRIFT = ("workflows/roundhouse-scheduled.yml", "Compare what runs with what was deployed")
OPEN = (
    "actions/pull-request/action.yml",
    "Open or update the pull request, and plan its branch",
)


def test_locks_alone_are_pushed_on_top_of_what_came_meanwhile_and_planned(workspace):
    pinned = git(workspace.head, "rev-parse", "HEAD")
    workspace.push("change", "models/c.yaml", "c: 1\n")
    git(workspace.head, "checkout", "-q", "--detach", pinned)
    (workspace.head / "models" / "b.lock.yaml").write_text("lock: 1\n")
    (workspace.head / "models" / "other.txt").write_text("not a lock\n")
    before = workspace.files("change")
    result = workspace.run(script(*PUSH_LOCKS), BRANCH="change", ENVIRONMENT="dev")
    assert result.returncode == 0, result.stderr
    assert workspace.files("change") == {*before, "models/b.lock.yaml"}
    assert (
        workspace.repository.git.run("log", "-1", "--format=%an %s", "change")
        == "roundhouse Locks of dev"
    )
    assert workspace.dispatched() == ["refs/heads/change"]


def test_build_without_a_new_lock_pushes_nothing(workspace):
    before = workspace.tip("change")
    result = workspace.run(script(*PUSH_LOCKS), BRANCH="change", ENVIRONMENT="dev")
    assert (result.returncode, result.stdout) == (0, "No lock changed.\n")
    assert workspace.tip("change") == before
    assert workspace.dispatched() == []


def test_branch_of_shell_words_is_a_branch(workspace):
    branch = "x;touch${IFS}$(id)`id`&&a"
    git(workspace.head, "push", "-q", "origin", f"HEAD:refs/heads/{branch}")
    (workspace.head / "models" / "b.lock.yaml").write_text("lock: 1\n")
    result = workspace.run(script(*PUSH_LOCKS), BRANCH=branch, ENVIRONMENT="dev")
    assert result.returncode == 0, result.stderr
    assert "models/b.lock.yaml" in workspace.files(f"refs/heads/{branch}")
    assert workspace.dispatched() == [f"refs/heads/{branch}"]


def test_refuses_links(workspace):
    refuse = script(*REFUSE_LINKS)
    assert workspace.run(refuse).returncode == 0
    (workspace.head / "models" / "c.yaml").symlink_to("/proc/self/environ")
    git(workspace.head, "add", "-A")
    result = workspace.run(refuse)
    assert result.returncode == 1
    assert "models/c.yaml" in result.stderr


def write_plan(workspace, head):
    """Write the artifact: a plan of the commit."""
    (workspace.folder / "plan").mkdir(exist_ok=True)
    found = plan(endpoint())
    found = found.model_copy(update={"head": found.head.model_copy(update={"commit": head})})
    (workspace.folder / "plan" / "plan.json").write_text(found.model_dump_json())


def open_change(workspace, head="change", login="acme"):
    people, repository = workspace.people, workspace.repository
    return workspace.forge.create_pull(people[login], repository, head, f"Of {login}", "A change")


def comment_as(workspace, token, issue, text):
    workspace.forge.add_comment(token, workspace.repository, issue, text)


def test_plan_is_the_one_comment_of_the_pull_request_with_its_head(workspace):
    pull, marker = open_change(workspace), "<!-- roundhouse:plan -->"
    for number in range(9):
        text = f"{marker} pasted" if number == 7 else f"comment {number}"
        comment_as(workspace, workspace.people["acme"], pull, text)
    comment_as(workspace, workspace.forge.tokens[workspace.bot], pull, "of another workflow")
    head, write = workspace.tip("change"), script(*COMMENT)
    write_plan(workspace, head)
    for _ in range(2):
        result = workspace.run(write, "code", HEAD=head)
        assert result.returncode == 0, result.stderr
    comments = workspace.repository.comments_of(pull["number"])
    assert len(comments) == 11
    (own,) = (item for item in comments if item["body"].startswith(f"{marker}\n"))
    assert own["user"]["type"] == "Bot"
    assert "1 changed endpoint" in own["body"]
    write_plan(workspace, "c" * 40)
    result = workspace.run(write, "code", HEAD=head)
    assert result.returncode == 1
    assert "plan that commit" in result.stderr


def test_head_that_no_pull_request_has_any_more_gets_no_comment(workspace):
    pull = open_change(workspace)
    write_plan(workspace, "d" * 40)
    result = workspace.run(script(*COMMENT), "code", HEAD="d" * 40)
    assert (result.returncode, "No open pull request" in result.stdout) == (0, True), result.stderr
    assert workspace.repository.comments_of(pull["number"]) == []


def test_fork_is_adopted_at_the_commit_that_was_labelled(workspace):
    fork = workspace.push("refs/pull/7/head", "models/fork.yaml", "f: 1\n")
    result = workspace.run(script(*ADOPT), "code", HEAD="b" * 40, NUMBER="7")
    assert result.returncode == 1
    assert "label it again" in result.stderr
    result = workspace.run(script(*ADOPT), "code", HEAD=fork, NUMBER="7", GITHUB_TOKEN="t")
    assert result.returncode == 0, result.stderr
    assert workspace.tip("adopt/7") == fork
    assert (workspace.folder / "body.md").read_text() == f"Takes over #7 at {fork}.\n"


def test_pull_request_of_a_branch_is_opened_once_then_updated_and_planned(workspace):
    workspace.push("change", "models/fork.yaml", "f: 1\n", workspace.fork)
    open_change(workspace, "mallory:change", "mallory")
    for title in ("Promote one", "Promote two"):
        (workspace.folder / "body.md").write_text(f"{title}: `a` & $(id)\n")
        result = workspace.run(script(*OPEN), BRANCH="change", TITLE=title, BODY="body.md")
        assert result.returncode == 0, result.stderr
    forks, pull = workspace.repository.open_pulls()
    assert forks["title"] == "Of mallory"
    assert (pull["title"], pull["body"]) == ("Promote two", "Promote two: `a` & $(id)\n")
    assert workspace.dispatched() == ["refs/heads/change"] * 2


def drift(workspace, code, text):
    """Run the drift job's step with a command that ends and prints so."""
    step = script(*DRIFT)
    begin, end = step.index(PYTHON), step.index("> ../drift.md")
    fake = f"(printf %s {json.dumps(text)}; exit {code}) "
    variables = {"ENVIRONMENT": "prod", "TITLE": "prod is not as deployed"}
    return workspace.run(step[:begin] + fake + step[end:], "code", **variables)


def issues(workspace):
    """The open issues."""
    return [item for item in workspace.repository.issues.values() if item["state"] == "open"]


def test_drift_is_one_issue_opened_updated_and_closed(workspace):
    title = "prod is not as deployed"
    workspace.forge.add_issue(workspace.people["acme"], workspace.repository, title, "by hand")
    for text in ("weight of A", "weight of B"):
        result = drift(workspace, 2, text)
        assert result.returncode == 2, result.stderr
    theirs, ours = issues(workspace)
    assert (ours["title"], ours["body"]) == (title, "weight of B")
    assert drift(workspace, 0, "prod is as deployed.").returncode == 0
    assert issues(workspace) == [theirs]
    comments = workspace.repository.comments_of(ours["number"])
    assert [item["body"] for item in comments] == ["prod is as deployed again."]


def test_drift_that_could_not_be_read_writes_no_issue(workspace):
    assert drift(workspace, 5, "").returncode == 5
    assert issues(workspace) == []
