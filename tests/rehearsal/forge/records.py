"""What a forge keeps: repositories, issues, pull requests, workflow runs and tokens."""

from __future__ import annotations

import copy
import itertools
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tests.rehearsal.forge.git import BareRepository

Document = dict[str, Any]
WRITE = "write"
LEVELS = {"none": 0, "read": 1, WRITE: 2}


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
    base_branch: str = ""
    pull_request: int | None = None
    status: str = "queued"
    conclusion: str | None = None
    job: Job | None = None
    artifacts: dict[str, bytes] = field(default_factory=dict)
    approvals: dict[str, str] = field(default_factory=dict)
    """`approved` or `rejected`, by environment."""

    def level(self, permission: str) -> str:
        """Return none, read or write: what the token of the present job may do."""
        granted = "none" if self.job is None else self.job.permissions.get(permission, "none")
        return "read" if self.is_fork and granted == WRITE else granted


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


@dataclass(frozen=True, kw_only=True)
class Environment:
    """A deployment environment; one of `reviewers` must approve each job that names it."""

    name: str
    reviewers: tuple[str, ...] = ()


@dataclass(kw_only=True)
class Repository:
    """A repository and what belongs to it; a fork has a `parent`."""

    owner: User
    name: str
    id: int
    git: BareRepository
    parent: Repository | None = None
    default_branch: str = "main"
    environments: dict[str, Environment] = field(default_factory=dict)
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
            "private": True,
            "default_branch": self.default_branch,
        }

    def open_pull_requests(self) -> Iterator[Document]:
        for issue in self.issues.values():
            if "pull_request" in issue and issue["state"] == "open":
                yield issue


@dataclass(frozen=True, kw_only=True)
class Event:
    """What happened; a workflow that has it as a trigger is started by whoever reads events."""

    name: str
    repository: Repository
    payload: Document
    sha: str
    ref: str
    actor: User


@dataclass(kw_only=True)
class Store:
    """Everything of one forge; `lock` guards it."""

    repositories: dict[str, Repository] = field(default_factory=dict)
    users: dict[str, User] = field(default_factory=dict)
    tokens: dict[str, Token] = field(default_factory=dict)
    runs: dict[int, Run] = field(default_factory=dict)
    artifacts: dict[int, tuple[Run, str]] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    lock: threading.Condition = field(default_factory=threading.Condition)
    ids: Iterator[int] = field(default_factory=lambda: itertools.count(1001))

    def start_workflows(self, token: Token, event: Event) -> None:
        """Keep an event. What a run's own token does starts nothing, dispatches apart."""
        if token.run is None or event.name in ("workflow_dispatch", "repository_dispatch"):
            self.events.append(replace(event, payload=copy.deepcopy(event.payload)))
            self.lock.notify_all()
