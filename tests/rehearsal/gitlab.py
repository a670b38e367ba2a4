"""Plays the GitLab example with gitlab-ci-local: plan, comment, deploy, drift, deploy again.

`python -m tests.rehearsal.gitlab`. npx fetches gitlab-ci-local and the Node that it needs; rsync
must be there. `glab` is a stand-in that keeps notes, and nobody's permissions are evaluated.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from roundhouse.gitops.set_up import GITLAB_EXAMPLE
from tests.local_cloud.tiny_session import TinySession, sound_network
from tests.rehearsal.runner import ACTIONS, BIN
from tests.rehearsal.scenario import DEV, PROD, ROOT, Paths, Rehearsal

TOOLS = ("node@22.23.3", "gitlab-ci-local@4.75.1")
PROJECT = "acme/models"


class GitLabRehearsal(Rehearsal):
    """The same accounts and models, with pipelines of the example."""

    def play(self):
        self.notes, self.jobs, self.artifacts = self.folder / "notes.json", [], []
        self.origin = self.folder / "gitlab" / f"{PROJECT}.git"
        self.step("two accounts and main's models deployed in dev and prod", self.prepare)
        self.step("merge request: plan and comment", self.plan_and_comment)
        self.step("merged: dev planned and deployed, drift", self.merge)
        self.step("promotion merged: prod planned and deployed", self.promote)

    def prepare(self):
        super().prepare()
        text = (ROOT / GITLAB_EXAMPLE).read_text(encoding="utf-8")
        (self.tree / ".gitlab-ci.yml").write_text(text, encoding="utf-8")
        self.clone.commit("Pipeline of GitLab")
        self.clone.git("clone", "--quiet", "--bare", ".", str(self.origin))
        self.clone.git("remote", "set-url", "origin", str(self.origin))

    def plan_and_comment(self):
        self.clone.git("checkout", "--quiet", "-b", "change")
        tree = self.tree
        tiny = TinySession(paths=Paths(code=ROOT, tree=tree, build=tree / "build"))
        tiny.write_model(sound_network(), mean=0.98)
        self.clone.commit("Another budget")
        request = {
            "CI_PIPELINE_SOURCE": "merge_request_event",
            "CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "main",
            "CI_MERGE_REQUEST_SOURCE_BRANCH_NAME": "change",
            "CI_MERGE_REQUEST_IID": "1",
        }
        assert self.pipeline(request, "plan") != 0, "an engine is missing, and the plan is green"
        assert self.pipeline(request, "comment") == 0
        (note,) = json.loads(self.notes.read_text())
        assert "1 engine to build" in note, note

    def merge(self):
        """What is merged has its lock: an administrator builds it here."""
        self.roundhouse(DEV, "build", "--env", "dev")
        self.clone.commit("Locks of dev")
        self.clone.git("checkout", "--quiet", "main")
        self.clone.git("merge", "--quiet", "change")
        self.clone.git("push", "--quiet", "origin", "main")
        before = self.endpoint(DEV, "tiny")
        push = {"CI_PIPELINE_SOURCE": "push"}
        assert self.pipeline(push, "plan dev") == 0
        assert self.pipeline(push, "deploy dev") == 0
        assert self.endpoint(DEV, "tiny") != before
        assert self.pipeline({"CI_PIPELINE_SOURCE": "schedule"}, "drift dev") == 0

    def promote(self):
        """The copy itself is made by hand: accounts that evaluate nothing share no bucket."""
        push, before = {"CI_PIPELINE_SOURCE": "push"}, self.endpoint(PROD, "tiny")
        self.promote_by_hand()
        self.clone.commit("Promotion to prod")
        assert self.pipeline(push, "plan prod") == 0
        assert self.pipeline(push, "deploy prod") == 0
        assert self.endpoint(PROD, "tiny") != before

    def pipeline(self, variables, job):
        """Run a job in a clone of the tree's branch, as GitLab does; return its exit code."""
        branch = self.clone.git("branch", "--show-current")
        place = self.folder / "jobs" / f"{len(self.jobs)}"
        self.clone.git("push", "--quiet", "origin", branch)
        self.clone.git("clone", "--quiet", "--branch", branch, str(self.origin), str(place))
        (place / ".git" / "info" / "exclude").write_text("/.gitlab-ci-local/\n")
        for artifact in self.artifacts:
            shutil.copy(artifact, place)
        given = {
            **self.accounts.job_variables(),
            **variables,
            "AWS_TOKEN": "a token",
            "CI_PROJECT_DIR": str(place),
            "CI_PROJECT_ID": "1",
            "CI_PROJECT_PATH": PROJECT,
            "CI_PROJECT_URL": f"https://gitlab.example/{PROJECT}",
            "CI_SERVER_URL": (self.folder / "gitlab").as_uri(),
            "GITLAB_TOKEN": "token",
            "GLAB_NOTES": str(self.notes),
            "REHEARSAL_ROOT": str(ROOT),
            "PATH": f"{BIN}:{ACTIONS / 'setup-python' / 'bin'}:{os.environ['PATH']}",
        }
        command = (
            "npx", "--yes", *(word for tool in TOOLS for word in ("--package", tool)),
            "gitlab-ci-local", job, "--force-shell-executor",
            "--ignore-predefined-vars", ",".join(name for name in given if name.startswith("CI_")),
            *(word for item in given.items() for word in ("--variable", "=".join(item))),
        )  # fmt: skip
        result = subprocess.run(
            command,
            cwd=place,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        self.jobs.append((job, result.returncode))
        self.artifacts += place.glob("plan*.json")
        (place.parent / f"{place.name}.log").write_text(result.stdout)
        self.say(f"    {job}: exit code {result.returncode}")
        return result.returncode


def main():
    """Exit code 1 for a step that did not do what it must."""
    folder = Path(tempfile.mkdtemp(prefix="rehearsal-gitlab-"))
    rehearsal = GitLabRehearsal(folder, say=lambda text: print(text, flush=True), permissions=False)
    try:
        rehearsal.play()
    except AssertionError as error:
        print(f"✗ {error}\nJobs and their logs: {folder / 'jobs'}", file=sys.stderr)
        return 1
    finally:
        rehearsal.stop()
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
