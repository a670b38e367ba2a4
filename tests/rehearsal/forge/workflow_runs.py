"""Workflow runs of the REST API: dispatches, approvals, artifacts and check runs."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

import yaml

from tests.rehearsal.forge.records import Document, Environment, Event, Repository, Run
from tests.rehearsal.forge.routes import (
    Request,
    Response,
    Route,
    invalid,
    not_found,
)

REPOSITORY = "/repos/{owner}/{repo}"
RUN = f"{REPOSITORY}/actions/runs/{{run_id}}"
WORKFLOWS = ".github/workflows"


def workflow_triggers(repository: Repository, commit: str, path: str) -> Document:
    """Return a workflow file's triggers at a commit, each with its filters; empty without one."""
    text = repository.git.text(commit, path)
    # `on` stays a word: YAML's other loaders read it as true.
    on: Any = {} if text is None else yaml.load(text, yaml.BaseLoader).get("on", {})
    if isinstance(on, str):
        return {on: {}}
    return (
        {name: {} for name in on} if isinstance(on, list) else {k: v or {} for k, v in on.items()}
    )


def dispatch_workflow(request: Request) -> Response:
    repository, body = request.repository, request.body
    ref = str(body["ref"]).removeprefix("refs/heads/")
    path = f"{WORKFLOWS}/{request.path['workflow_id']}"
    if repository.git.text(f"refs/heads/{repository.default_branch}", path) is None:
        raise not_found()
    commit = repository.git.commit(f"refs/heads/{ref}")
    if commit is None:
        raise invalid(f"No ref found for: {ref}")
    dispatched = workflow_triggers(repository, commit, path).get("workflow_dispatch")
    if dispatched is None:
        raise invalid("Workflow does not have 'workflow_dispatch' trigger")
    known, given = dispatched.get("inputs", {}), body.get("inputs", {})
    if unknown := sorted(given.keys() - known.keys()):
        raise invalid(f"Unexpected inputs provided: {unknown}")
    required = {name for name, spec in known.items() if (spec or {}).get("required") == "true"}
    if missing := sorted(required - given.keys()):
        raise invalid(f"Required input '{missing[0]}' not provided")
    defaults = {name: (spec or {}).get("default", "") for name, spec in known.items()}
    payload = {"inputs": {**defaults, **given}, "ref": f"refs/heads/{ref}", "workflow": path}
    event = Event(
        name="workflow_dispatch",
        repository=repository,
        payload={**payload, "repository": repository.document()},
        sha=commit,
        ref=f"refs/heads/{ref}",
        actor=request.token.user,
    )
    request.store.start_workflows(request.token, event)
    return Response(status=204)


def run_document(run: Run) -> Document:
    """Return a run as the REST API and the event `workflow_run` show it."""
    pulls = [] if run.pull_request is None or run.is_fork else [{"number": run.pull_request}]
    return {
        "id": run.id,
        "name": run.name,
        "path": run.workflow,
        "event": run.event,
        "status": run.status,
        "conclusion": run.conclusion,
        "head_sha": run.sha,
        "head_branch": run.head_branch,
        "pull_requests": pulls,
        "repository": run.repository.document(),
        "actor": run.actor.document(),
    }


def list_artifacts(request: Request) -> Response:
    run, store = request.run(), request.store
    items = [
        {
            "id": identifier,
            "name": name,
            "size_in_bytes": len(run.artifacts[name]),
            "expired": False,
        }
        for identifier, (owner, name) in store.artifacts.items()
        if owner is run and request.query.get("name", name) == name
    ]
    return Response(document={"artifacts": items})


def read_artifact(request: Request) -> Response:
    run, name = request.store.artifacts.get(request.number("artifact_id"), (None, ""))
    if run is None or run.repository is not request.repository:
        raise not_found()
    if request.path["archive_format"] != "zip":
        raise not_found()
    return Response(content=run.artifacts[name], headers={"Content-Type": "application/zip"})


def list_pending_deployments(request: Request) -> Response:
    run = request.run()
    names = [] if run.job is None or run.job.environment is None else [run.job.environment]
    pending = [
        {"environment": {"id": index, "name": name}, "current_user_can_approve": True}
        for name in names
        if name not in run.approvals
        for index in _environment_ids(run.repository, name)
        if run.repository.environments[name].reviewers
    ]
    return Response(document=pending)


def review_deployments(request: Request) -> Response:
    run, body, login = request.run(), request.body, request.token.user.login
    names = list(run.repository.environments)
    for index in body["environment_ids"]:
        if not 1 <= index <= len(names):
            raise invalid(f"environment {index} is not of this repository")
        if login not in run.repository.environments[names[index - 1]].reviewers:
            raise invalid(f"{login} is no reviewer of {names[index - 1]}")
        run.approvals[names[index - 1]] = str(body["state"])
    request.store.lock.notify_all()
    return Response(document=[])


def put_environment(request: Request) -> Response:
    repository, name = request.repository, unquote(request.path["environment_name"])
    wanted = {item["id"] for item in request.body.get("reviewers") or ()}
    logins = tuple(user.login for user in request.store.users.values() if user.id in wanted)
    repository.environments[name] = Environment(name=name, reviewers=logins)
    (identifier,) = _environment_ids(repository, name)
    return Response(document={"id": identifier, "name": name})


def list_checks(request: Request) -> Response:
    commit = request.repository.git.commit(unquote(request.path["ref"]))
    found = [check for check in request.repository.checks if check["head_sha"] == commit]
    return Response(document={"check_runs": found})


def _environment_ids(repository: Repository, name: str) -> list[int]:
    return [i for i, known in enumerate(repository.environments, start=1) if known == name]


ACTIONS, CHECKS = ("actions",), ("checks",)
ROUTES = (
    Route(
        "POST",
        f"{REPOSITORY}/actions/workflows/{{workflow_id}}/dispatches",
        dispatch_workflow,
        ACTIONS,
    ),
    Route("GET", f"{RUN}/artifacts", list_artifacts, ACTIONS),
    Route(
        "GET",
        f"{REPOSITORY}/actions/artifacts/{{artifact_id}}/{{archive_format}}",
        read_artifact,
        ACTIONS,
    ),
    Route("GET", f"{RUN}/pending_deployments", list_pending_deployments, ACTIONS),
    Route("POST", f"{RUN}/pending_deployments", review_deployments, ("deployments",)),
    Route(
        "PUT",
        f"{REPOSITORY}/environments/{{environment_name}}",
        put_environment,
        ("administration",),
    ),
    Route("GET", f"{REPOSITORY}/commits/{{ref}}/check-runs", list_checks, CHECKS),
)
