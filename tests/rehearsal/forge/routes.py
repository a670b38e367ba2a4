"""The forge's REST API: which function answers a request, and its refusals."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.rehearsal.forge.records import Document, Repository, Run, Store, Token

NOT_ACCESSIBLE = "Resource not accessible by integration"


class RefusedError(Exception):
    """GitHub's refusal of a request: HTTP status and message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


def not_found() -> RefusedError:
    """The refusal of what is not there, or what a token may not see."""
    return RefusedError(404, "Not Found")


def invalid(message: str) -> RefusedError:
    """The refusal of a request that cannot be processed."""
    return RefusedError(422, f"Validation Failed: {message}")


@dataclass(frozen=True, kw_only=True)
class Request:
    """One request of the REST API; `path` holds the parts of its path by name."""

    store: Store
    token: Token
    url: str
    path: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Any] = field(default_factory=dict)

    @property
    def repository(self) -> Repository:
        found = self.store.repositories.get(f"{self.path['owner']}/{self.path['repo']}")
        if found is None:
            raise not_found()
        return found

    def number(self, name: str) -> int:
        """Return a part of the path that is a number."""
        if not self.path[name].isdecimal():
            raise not_found()
        return int(self.path[name])

    def issue(self, name: str = "issue_number") -> Document:
        """Return an issue or pull request of the repository."""
        issue = self.repository.issues.get(self.number(name))
        if issue is None:
            raise not_found()
        return issue

    def pull_request(self) -> Document:
        """Return a pull request of the repository."""
        issue = self.issue("pull_number")
        if "pull_request" not in issue:
            raise not_found()
        return issue

    def run(self) -> Run:
        """Return a workflow run of the repository."""
        found = self.store.runs.get(self.number("run_id"))
        if found is None or found.repository is not self.repository:
            raise not_found()
        return found


@dataclass(frozen=True, kw_only=True)
class Response:
    """Status, document (None: empty) and headers; `content` in place of a document."""

    status: int = 200
    document: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes | None = None


Answer = Callable[[Request], Response]


@dataclass(frozen=True)
class Route:
    """A method and path template of GitHub's API, and the function behind it.

    `permissions`: a run's token needs one of them at `level`; none are needed where it is empty.
    """

    method: str
    template: str
    answer: Answer
    permissions: tuple[str, ...] = ()

    @property
    def level(self) -> str:
        return "read" if self.method == "GET" else "write"

    def match(self, method: str, path: str) -> dict[str, str] | None:
        pattern = re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", self.template)
        found = re.fullmatch(pattern, path)
        return None if method != self.method or found is None else found.groupdict()

    def respond(self, request: Request) -> Response:
        """Return the response, if the token may have it. Raises RefusedError."""
        token = request.token
        if "{owner}" in self.template:
            allowed = [token.may(request.repository, name, self.level) for name in self.permissions]
            if not any(allowed) and token.run is not None:
                raise RefusedError(403, NOT_ACCESSIBLE)
        return self.answer(request)
