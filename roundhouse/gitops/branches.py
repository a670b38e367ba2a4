"""A branch that a command writes: commits in a work tree of its own, never in the user's folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from onboarding.replacement import replace_text
from roundhouse.errors import NotReadyError, UsageError
from roundhouse.processes import Command, Outcome, Run

REMOTE = "origin"


@dataclass(frozen=True, kw_only=True)
class Branch:
    """One branch of the repository in `folder`."""

    folder: Path
    name: str
    run: Run

    def fetch(self) -> None:
        """Read the branch from the remote; one that is not there is none."""
        ref = f"refs/heads/{self.name}:refs/remotes/{REMOTE}/{self.name}"
        self._git("fetch", "--quiet", REMOTE, f"+{ref}")

    def tip(self) -> str | None:
        """Return the branch's commit, the remote's first; None: there is no such branch."""
        for ref in (f"refs/remotes/{REMOTE}/{self.name}", f"refs/heads/{self.name}"):
            found = self._git("rev-parse", "--verify", "--quiet", ref)
            if found.code == 0:
                return found.output.strip()
        return None

    @contextmanager
    def work_tree(self, place: Path, commit: str) -> Iterator[Path]:
        """Check a commit out into a folder that is not there yet, and remove it at the end."""
        self._require("worktree", "add", "--quiet", "--detach", str(place), commit)
        try:
            yield place
        finally:
            self._git("worktree", "remove", "--force", str(place))

    def commit(self, work_tree: Path, texts: Mapping[str, str], message: str) -> str:
        """Commit files in a work tree by their paths; return the new commit, or the present one.

        The branch is that commit then. Raises UsageError where the user is on the branch.
        """
        current = self._git("symbolic-ref", "--quiet", "--short", "HEAD").output.strip()
        if current == self.name:
            raise UsageError(
                f"The repository is on branch {self.name}, which this command writes; switch to "
                "another one (`git switch main`), then try again."
            )
        for path, text in texts.items():
            replace_text(work_tree / path, text)
        if texts:
            self._require("add", "--", *texts, folder=work_tree)
            self._require("commit", "--quiet", "-m", message, folder=work_tree)
        commit = self._require("rev-parse", "HEAD", folder=work_tree).output.strip()
        self._require("update-ref", f"refs/heads/{self.name}", commit)
        return commit

    def push(self) -> None:
        """Push the branch; what others pushed meanwhile is never overwritten."""
        ref = f"refs/heads/{self.name}"
        self._require("push", "--quiet", REMOTE, f"{ref}:{ref}")

    def _require(self, *arguments: str, folder: Path | None = None) -> Outcome:
        outcome = self._git(*arguments, folder=folder)
        if outcome.code != 0:
            raise NotReadyError(f"git {arguments[0]} failed: {outcome.last_lines()}.")
        return outcome

    def _git(self, *arguments: str, folder: Path | None = None) -> Outcome:
        return self.run(Command(argv=("git", *arguments), folder=folder or self.folder))
