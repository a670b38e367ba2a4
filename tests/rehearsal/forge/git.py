"""Bare git repositories of a forge, and git's own HTTP server in front of them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

SETTINGS = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
    "GIT_TERMINAL_PROMPT": "0",
}
AUTHOR = ("-c", "user.name=forge", "-c", "user.email=forge@users.noreply.github.com")


class GitError(Exception):
    """git refused a command; the message is its own."""


@dataclass(frozen=True, kw_only=True)
class BareRepository:
    """A bare repository in `folder`."""

    folder: Path

    @classmethod
    def create(cls, folder: Path) -> BareRepository:
        """Create an empty repository that takes pushes over HTTP."""
        folder.mkdir(parents=True)
        repository = cls(folder=folder)
        repository.run("init", "--bare", "--quiet", "--initial-branch=main", ".")
        repository.run("config", "http.receivepack", "true")
        return repository

    def run(self, *words: str) -> str:
        """Return what a git command prints. Raises GitError."""
        result = subprocess.run(
            ("git", *AUTHOR, *words),
            cwd=self.folder,
            env={**os.environ, **SETTINGS},
            capture_output=True,
            text=True,
            check=False,
        )
        if result.returncode != 0:
            raise GitError(f"git {words[0]}: {result.stderr.strip() or result.stdout.strip()}")
        return result.stdout.strip()

    def commit(self, ref: str) -> str | None:
        """Return the commit of a reference; None when there is none."""
        try:
            return self.run("rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}")
        except GitError:
            return None

    def branches(self) -> dict[str, str]:
        """Return the commit of every branch."""
        lines = self.run("for-each-ref", "--format=%(refname:lstrip=2) %(objectname)", "refs/heads")
        return dict(line.split(" ") for line in lines.splitlines())

    def text(self, commit: str, path: str) -> str | None:
        """Return a file of a commit; None when it is not there."""
        try:
            return self.run("show", f"{commit}:{path}")
        except GitError:
            return None

    def files(self, commit: str, folder: str) -> tuple[str, ...]:
        """Return the paths of a folder's files in a commit."""
        return tuple(self.run("ls-tree", "--name-only", commit, f"{folder}/").splitlines())

    def changed_files(self, base: str, head: str) -> tuple[str, ...]:
        """Return the paths of what differs since both had a commit in common."""
        return tuple(self.run("diff", "--name-only", f"{base}...{head}").splitlines())

    def fetch(self, other: BareRepository, ref: str, into: str) -> None:
        """Copy a reference of another repository, with its commits."""
        self.run("fetch", "--quiet", "--no-tags", str(other.folder), f"+{ref}:{into}")

    def merge(self, base: str, head: str, message: str) -> str | None:
        """Return a merge commit of two commits, in no branch; None where files conflict."""
        try:
            tree = self.run("merge-tree", "--write-tree", base, head).splitlines()[0]
        except GitError:
            return None
        return self.run("commit-tree", tree, "-p", base, "-p", head, "-m", message)


def serve_http(
    root: Path, *, method: str, path: str, query: str, headers: Mapping[str, str], body: bytes
) -> tuple[int, list[tuple[str, str]], bytes]:
    """Return status, headers and body of git's own CGI program for one request below `root`."""
    environment = {
        **os.environ,
        **SETTINGS,
        "GIT_PROJECT_ROOT": str(root),
        "GIT_HTTP_EXPORT_ALL": "1",
        "REMOTE_USER": "forge",
        "REQUEST_METHOD": method,
        "PATH_INFO": path,
        "QUERY_STRING": query,
        "CONTENT_TYPE": headers.get("content-type", ""),
        "CONTENT_LENGTH": str(len(body)),
        "HTTP_CONTENT_ENCODING": headers.get("content-encoding", ""),
        "GIT_PROTOCOL": headers.get("git-protocol", ""),
    }
    result = subprocess.run(
        ("git", "http-backend"), env=environment, input=body, capture_output=True, check=True
    )
    head, _, content = result.stdout.partition(b"\r\n\r\n")
    fields = _fields(head.decode().split("\r\n"))
    status = next((int(value.split()[0]) for name, value in fields if name == "Status"), 200)
    return status, [field for field in fields if field[0] != "Status"], content


def _fields(lines: Sequence[str]) -> list[tuple[str, str]]:
    return [(name, value) for name, _, value in (line.partition(": ") for line in lines) if name]
