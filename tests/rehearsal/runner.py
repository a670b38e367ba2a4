"""Runs workflows by `act` on this machine, as GitHub's runners would for a forge's events."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

from tests.rehearsal.forge.forge import MAIN
from tests.rehearsal.forge.records import Event
from tests.rehearsal.forge.server import API
from tests.rehearsal.workflows import BASE_EVENTS, triggered_workflows

ROOT = Path(__file__).resolve().parents[2]
ACTIONS = Path(__file__).with_name("actions")
BIN = Path(__file__).with_name("bin")
"""Programs of GitHub's runners that this machine lacks: `gh`, and GitLab's `glab`."""
USES = re.compile(r"uses: ([\w.-]+/([\w.-]+)@[0-9a-f]{40})")
KEPT = ("PATH", "LANG", "TMPDIR")
"""What a job has of this machine's own variables."""


class Runner:
    """Plays the runs of a forge one after the other; `variables` is what every job has too."""

    def __init__(self, forge, folder, variables):
        self.forge, self.folder, self.variables = forge, folder, variables
        self.runs = []

    def run_all(self):
        """Play everything that events start, until nothing is left; the runs in their order."""
        first = len(self.runs)
        while event := self._next():
            for workflow in triggered_workflows(event):
                run = self._run(event, workflow)
                self.runs.append(run)
                self._complete(event, run)
        return self.runs[first:]

    def _next(self):
        with self.forge.lock:
            return self.forge.events.pop(0) if self.forge.events else None

    def _run(self, event, workflow):
        pull = event.payload.get("pull_request")
        base, is_base = event.repository, event.name in BASE_EVENTS
        is_fork = pull is not None and pull["head"]["repo"]["full_name"] != base.full_name
        run, token = self.forge.add_run(
            repository=base,
            workflow=workflow.path,
            name=workflow.name,
            event=event.name,
            ref=MAIN if is_base else event.ref,
            sha=workflow.commit,
            actor=event.actor,
            is_fork=is_fork and not is_base,
            head_branch=pull["head"]["ref"] if pull else event.ref.removeprefix("refs/heads/"),
            pull_request=pull["number"] if pull else None,
            status="in_progress",
        )
        begin = time.monotonic()
        place = self.folder / str(run.id)
        run.checked, run.results = check_commit(run), {}
        code = self._play(run, token, event, workflow, place)
        run.status, run.conclusion = "completed", conclusion(run, code, place)
        run.seconds = time.monotonic() - begin
        shutil.rmtree(place / "cache", ignore_errors=True)
        return run

    def _play(self, run, token, event, workflow, place):
        """Run act in a clone of the workflow's commit; its log is left in `place`."""
        clone = place / "repository"
        clone.mkdir(parents=True)
        for words in (
            ("init", "--quiet", "."),
            ("fetch", "--quiet", "--depth=1", str(run.repository.git.folder), workflow.commit),
            ("checkout", "--quiet", "FETCH_HEAD"),
        ):
            subprocess.run(("git", *words), cwd=clone, check=True)
        event_file = place / "event.json"
        event_file.write_text(json.dumps(event.payload))
        command = self._command(run, token, workflow, place, event_file)
        with (
            (place / "log.jsonl").open("w") as log,
            subprocess.Popen(
                command,
                cwd=clone,
                env=self._machine(place),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            ) as process,
        ):
            for line in process.stdout:
                log.write(line)
                log.flush()
                self._read(run, workflow, line)
        return process.returncode

    def _read(self, run, workflow, line):
        """Follow act's log: which job is at work, and how each ended."""
        try:
            entry = json.loads(line)
        except ValueError:
            return
        name, job_id = entry.get("job", "").strip(), entry.get("jobID")
        if job_id is None:
            return
        if "step" in entry and name not in run.results:
            run.results[name] = None
            job = workflow.job(name, job_id, run.ref)
            with self.forge.lock:
                run.job = job
        if "jobResult" in entry and name in run.results:
            run.results[name] = entry["jobResult"]
            check = {"name": run.job.name, "head_sha": run.checked, "status": "completed"}
            with self.forge.lock:
                run.repository.checks.append({**check, "conclusion": entry["jobResult"]})

    def _command(self, run, token, workflow, place, event_file):
        variables = {
            **self.variables,
            "ACTIONS_ID_TOKEN_REQUEST_URL": f"{self.forge.url}/oidc/token?run={run.id}",
            "ACTIONS_ID_TOKEN_REQUEST_TOKEN": token,
            "ACTIONS_RESULTS_URL": self.forge.url,
            "ACTIONS_RUNTIME_TOKEN": token,
            "GITHUB_API_URL": f"{self.forge.url}{API}",
            "GITHUB_SERVER_URL": self.forge.url,
            "GITHUB_REPOSITORY": run.repository.full_name,
            "GITHUB_REPOSITORY_OWNER": run.repository.owner.login,
            "GITHUB_RUN_ID": str(run.id),
            "GITHUB_REF": run.ref,
            "REHEARSAL_ROOT": str(ROOT),
        }
        actions = {}
        for file in sorted((place / "repository" / ".github").rglob("*.yml")):
            actions |= dict(USES.findall(file.read_text()))
        return (
            str(ROOT / ".venv" / "bin" / "act"),
            run.event,
            *("--workflows", workflow.path, "--eventpath", str(event_file), "--json"),
            *("--platform", "ubuntu-latest=-self-hosted", "--actor", run.actor.login),
            *("--action-cache-path", str(place / "cache"), "--action-offline-mode"),
            *("--concurrent-jobs", "1", "--no-cache-server", "--no-skip-checkout"),
            *("--secret", f"GITHUB_TOKEN={token}"),
            *(word for item in variables.items() for word in ("--env", "=".join(item))),
            *(
                word
                for use, name in actions.items()
                for word in ("--local-repository", f"{use}={ACTIONS / name}")
            ),
        )

    def _machine(self, place):
        home = place / "home"
        home.mkdir()
        kept = {name: os.environ[name] for name in KEPT if name in os.environ}
        kept["PATH"] = f"{BIN}:{kept['PATH']}"
        return {**kept, "HOME": str(home), "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}

    def _complete(self, event, run):
        """Start what follows a completed run: workflows with `workflow_run`."""
        if event.name == "workflow_run" or run.conclusion == "skipped":
            return
        pull, repository = event.payload.get("pull_request"), run.repository.document()
        document = {
            **run.document(),
            "head_sha": run.checked,
            "head_repository": repository if pull is None else pull["head"]["repo"],
        }
        payload = {
            "action": "completed",
            "workflow_run": document,
            "repository": repository,
            "sender": run.actor.document(),
        }
        self.forge.events.insert(
            0,
            Event(
                name="workflow_run",
                repository=run.repository,
                payload=payload,
                sha=run.repository.git.commit(MAIN),
                ref=MAIN,
                actor=run.actor,
            ),
        )


def conclusion(run, code, place):
    """A run's conclusion by its jobs.

    act fails for the matrix of a job that is skipped, where GitHub never reads it.
    """
    results = set(run.results.values())
    if results:
        return "success" if results == {"success"} else "failure"
    is_skipped = code == 0 or "Error while evaluating matrix" in (place / "log.jsonl").read_text()
    return "skipped" if is_skipped else "failure"


def check_commit(run):
    """The commit that a run's checks are shown at: of a pull request its head."""
    if run.pull_request is None:
        return run.sha
    return run.repository.issues[run.pull_request]["head"]["sha"]


def lines(place):
    """What the jobs of a run printed."""
    for line in (place / "log.jsonl").read_text().splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            yield line
            continue
        yield f"{entry.get('job', '')} | {entry.get('msg', '').rstrip()}"
