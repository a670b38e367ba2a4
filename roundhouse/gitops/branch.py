"""A branch that a command writes: committed without touching the user's working tree or index."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from roundhouse import settings
from roundhouse.errors import NotReadyError
from roundhouse.processes import Command, Outcome, Run

REMOTE = "origin"


@dataclass(frozen=True, kw_only=True)
class Branch:
    """A branch of the repository in `folder`, and of its remote `origin`.

    Nothing that the user has checked out changes. Raises NotReadyError where git or the remote
    refuses.
    """

    name: str
    folder: Path
    run: Run

    def remote_commit(self) -> str | None:
        """Return the commit that the remote has of the branch; None: it has no such branch."""
        listed = self._git("ls-remote", "--heads", REMOTE, self._ref).split()
        return listed[0] if listed else None

    def read(self, commit: str, file: str) -> str | None:
        """Return a file's text at a commit of the branch; None where it has no such file."""
        self._git("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", REMOTE, self._ref)
        shown = self._outcome("show", f"{commit}:./{file}")
        return shown.output if shown.code == 0 else None

    def commit(self, files: Mapping[str, str], message: str, *, parent: str) -> str:
        """Commit files, by path below the folder, onto a parent; return the new commit.

        No branch is at it yet. Without files it is the parent.
        """
        if not files:
            return parent
        with tempfile.TemporaryDirectory(prefix="roundhouse-index-") as index:
            variables = {"GIT_INDEX_FILE": str(Path(index) / "index")}
            prefix = self._git("rev-parse", "--show-prefix").strip()
            self._git("read-tree", parent, **variables)
            for file, text in files.items():
                blob = self._git("hash-object", "-w", "--stdin", stdin=text).strip()
                entry = f"100644,{blob},{prefix}{file}"
                self._git("update-index", "--add", "--cacheinfo", entry, **variables)
            tree = self._git("write-tree", **variables).strip()
        return self._git("commit-tree", tree, "-p", parent, "-m", message).strip()

    def replace(self, before: str | None, after: str | None) -> None:
        """Let the remote's branch be at `after` (None: gone), where it is at `before` now.

        A branch that is not at `before` (None: not there) stays as it is.
        """
        lease = f"--force-with-lease={self._ref}:{before or ''}"
        self._git("push", "--quiet", lease, REMOTE, f"{after or ''}:{self._ref}")

    @property
    def _ref(self) -> str:
        return f"refs/heads/{self.name}"

    def _git(self, *arguments: str, stdin: str | None = None, **variables: str) -> str:
        outcome = self._outcome(*arguments, stdin=stdin, **variables)
        if outcome.code != 0:
            reason = re.sub(r"://[^@/\s]*@", "://", outcome.last_lines()) or f"exit {outcome.code}"
            raise NotReadyError(
                f"git {arguments[0]} for branch {self.name} of {REMOTE} failed: "
                f"{reason.rstrip('.')}. Files and the branch that is checked out are as they were."
            )
        return outcome.output

    def _outcome(self, *arguments: str, stdin: str | None = None, **variables: str) -> Outcome:
        environment = {**settings.inherited(), "GIT_TERMINAL_PROMPT": "0", **variables}
        argv = ("git", *arguments)
        return self.run(
            Command(argv=argv, folder=self.folder, environment=environment, stdin=stdin)
        )
