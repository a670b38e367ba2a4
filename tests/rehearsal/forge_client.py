"""A forge with two people, a repository and its fork, and requests of it over HTTP."""

from __future__ import annotations

import base64
import contextlib
import json
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

from tests.rehearsal.forge.records import Job
from tests.rehearsal.forge.server import Forge

WORKFLOW = """\
on:
  pull_request:
  workflow_dispatch: {inputs: {environment: {required: true}, reason: {default: none}}}
"""


class Client:
    """Requests of one person or job; refusals are returned, not raised."""

    def __init__(self, forge, token):
        self.forge, self.token = forge, token

    def send(self, method, path, body=None, url=None):
        request = urllib.request.Request(
            f"{self.forge.api_url if url is None else url}{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self.token}"},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=10) as reply:
                return reply.status, json.loads(reply.read() or b"null"), reply.headers
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read() or b"null"), error.headers


@contextlib.contextmanager
def running_forge(folder):
    """alice owns acme/models (she is `acme`), mallory a fork of it."""
    forge = Forge(folder)
    forge.start()
    try:
        owner, stranger = (Client(forge, forge.add_user(name)) for name in ("acme", "mallory"))
        forge.add_repository("acme", "models")
        commit(owner, folder / "seed", "acme/models", "main", {".github/workflows/x.yml": WORKFLOW})
        forge.add_repository("mallory", "models", parent="acme/models")
        yield forge, owner, stranger
    finally:
        forge.stop()


def git(folder: Path, client: Client, *words: str) -> str:
    secret = base64.b64encode(f"x-access-token:{client.token}".encode()).decode()
    result = subprocess.run(
        (
            "git",
            *("-c", f"http.extraHeader=Authorization: Basic {secret}"),
            *("-c", "user.name=t", "-c", "user.email=t@example.com"),
            *words,
        ),
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return result.stdout if result.returncode == 0 else f"refused: {result.stderr}"


def commit(client, folder, repository, branch, files, base=None):
    """Push a commit with these files to a branch; what git printed."""
    folder.mkdir(parents=True)
    url = f"{client.forge.url}/{repository}.git"
    if base is None:
        git(folder, client, "init", "-q", "-b", branch)
    else:
        git(folder, client, "clone", "-q", "-b", base, url, ".")
        git(folder, client, "checkout", "-q", "-b", branch)
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    git(folder, client, "add", "-A")
    git(folder, client, "commit", "-qm", "a change")
    return git(folder, client, "push", "-q", url, f"HEAD:{branch}")


def job(forge, *, permissions=None, environment=None, **fields):
    """A run of acme/models at its main branch, and the client of its job."""
    repository = forge.store.repositories["acme/models"]
    run, token = forge.add_run(
        **{
            "repository": repository,
            "workflow": ".github/workflows/x.yml",
            "name": "x",
            "event": "push",
            "ref": "refs/heads/main",
            "sha": repository.git.commit("main"),
            "actor": forge.store.users["acme"],
            **fields,
        }
    )
    run.job = Job(
        name="j",
        permissions=permissions or {},
        workflow=".github/workflows/run.yml",
        workflow_ref="refs/heads/main",
        environment=environment,
    )
    return run, Client(forge, token)
