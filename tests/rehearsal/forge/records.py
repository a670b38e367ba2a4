"""What a forge keeps: people, repositories, workflow runs and their tokens."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from tests.rehearsal.forge.git import BareRepository

Document = dict[str, Any]
WRITE = "write"
LEVELS = {"none": 0, "read": 1, WRITE: 2}
WORKFLOWS = ".github/workflows"
ISSUER = "https://token.actions.githubusercontent.com"


class RefusedError(Exception):
    """GitHub's refusal of a request: HTTP status and message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


NOT_FOUND = RefusedError(404, "Not Found")


@dataclass(frozen=True, kw_only=True)
class User:
    """A person, or a bot (`is_bot`)."""

    login: str
    id: int
    is_bot: bool = False

    def document(self) -> Document:
        return {"login": self.login, "id": self.id, "type": "Bot" if self.is_bot else "User"}


ACTIONS = User(login="github-actions[bot]", id=41898282, is_bot=True)


@dataclass(frozen=True, kw_only=True)
class Job:
    """The job that a run is at. `workflow`: the file that defines it, which a caller may name.

    `permissions` are those of its token; a permission that is not named is none.
    """

    name: str
    permissions: Mapping[str, str]
    workflow: str
    workflow_ref: str
    environment: str | None = None


@dataclass(kw_only=True)
class Run:
    """A workflow run. `is_fork`: its token reads only, whatever the workflow asks for."""

    id: int
    repository: Repository
    workflow: str
    name: str
    event: str
    ref: str
    sha: str
    actor: User
    is_fork: bool = False
    head_branch: str = ""
    pull_request: int | None = None
    status: str = "queued"
    conclusion: str | None = None
    job: Job | None = None
    artifacts: dict[str, bytes] = field(default_factory=dict)
    approvals: set[str] = field(default_factory=set)
    """Environments that a reviewer approved."""

    def level(self, permission: str) -> str:
        """Return none, read or write: what the token of the present job may do."""
        granted = "none" if self.job is None else self.job.permissions.get(permission, "none")
        return "read" if self.is_fork and granted == WRITE else granted

    @property
    def waits_for(self) -> str | None:
        """The environment whose approval the present job waits for."""
        name = None if self.job is None else self.job.environment
        is_guarded = name is not None and bool(self.repository.reviewers.get(name))
        return name if is_guarded and name not in self.approvals else None

    def document(self) -> Document:
        """Return what workflows read of the run in the event `workflow_run`."""
        names = ("id", "name", "event", "conclusion", "head_branch")
        return {name: getattr(self, name) for name in names}

    def identity_token(self, audience: str) -> str:
        """Return a JSON Web Token with the claims that STS reads; nobody checks its signature.

        Source: GitHub's OpenID Connect reference. Raises RefusedError.
        """
        job, repository = self.job, self.repository
        if job is None or self.is_fork or self.level("id-token") != WRITE:
            raise RefusedError(403, "the job has no `id-token: write`, or the run is a fork's")
        if self.waits_for is not None:
            raise RefusedError(403, f"environment {self.waits_for} is not approved")
        subject = "pull_request" if self.event == "pull_request" else f"ref:{self.ref}"
        if job.environment is not None:
            subject = f"environment:{job.environment}"
        claims = {
            "iss": ISSUER,
            "aud": audience,
            "sub": f"repo:{repository.full_name}:{subject}",
            "repository": repository.full_name,
            "repository_id": str(repository.id),
            "ref": self.ref,
            "actor": self.actor.login,
            "workflow": self.name,
            "job_workflow_ref": f"{repository.full_name}/{job.workflow}@{job.workflow_ref}",
            **({} if job.environment is None else {"environment": job.environment}),
        }
        parts = ({"alg": "RS256", "typ": "JWT"}, claims)
        coded = (base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in parts)
        return ".".join([*(part.decode() for part in coded), "none"])


@dataclass(frozen=True, kw_only=True)
class Token:
    """A person's token may do everything, one of a run what its present job may do."""

    user: User
    run: Run | None = None

    def may(self, repository: Repository, permission: str, level: str) -> bool:
        if self.run is None:
            return True
        is_own = self.run.repository is repository
        return is_own and LEVELS[self.run.level(permission)] >= LEVELS[level]


@dataclass(kw_only=True)
class Repository:
    """A repository and what belongs to it; a fork has a `parent`."""

    owner: User
    name: str
    id: int
    git: BareRepository
    parent: Repository | None = None
    reviewers: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """By environment: one of them must approve each job that names it."""
    issues: dict[int, Document] = field(default_factory=dict)
    """Issues and pull requests, by number, as the REST API shows them."""
    comments: dict[int, Document] = field(default_factory=dict)
    checks: list[Document] = field(default_factory=list)

    @property
    def full_name(self) -> str:
        return f"{self.owner.login}/{self.name}"

    def document(self) -> Document:
        return {
            "id": self.id,
            "name": self.name,
            "full_name": self.full_name,
            "owner": self.owner.document(),
            "fork": self.parent is not None,
            "default_branch": "main",
        }

    def open_pulls(self) -> Iterator[Document]:
        for issue in self.issues.values():
            if "pull_request" in issue and issue["state"] == "open":
                yield issue

    def comments_of(self, number: int) -> list[Document]:
        return [item for item in self.comments.values() if item["issue_number"] == number]

    def triggers(self, commit: str, path: str) -> Document:
        """Return a workflow file's triggers at a commit, each with its filters."""
        text = self.git.text(commit, path)
        # `on` stays a word: YAML's other loaders read it as true.
        on = {} if text is None else yaml.load(text, yaml.BaseLoader)["on"]
        return {name: filters or {} for name, filters in on.items()}


@dataclass(frozen=True, kw_only=True)
class Event:
    """What happened; a workflow that has it as a trigger is started by whoever reads events."""

    name: str
    repository: Repository
    payload: Document
    sha: str
    ref: str
    actor: User
