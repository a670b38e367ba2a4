"""Revisions of the onboarding files: a git reference, exported into a folder and read."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from onboarding.text_generation.checkpoint_key import generator_paths
from onboarding.tree import Tree, read_tree
from roundhouse.errors import NotReadyError, UsageError
from roundhouse.paths import TREE_FOLDERS
from roundhouse.processes import Command, Outcome, Run

ONBOARDING_FOLDERS = (*TREE_FOLDERS, "promotions")
"""What platform teams write; a change of nothing else is data only."""
PROGRAM_MISSING = 127


@dataclass(frozen=True, kw_only=True)
class Git:
    """git in the folder of an onboarding tree; only commands that read are used."""

    folder: Path
    run: Run

    def commit(self, ref: str) -> str:
        """Return the full commit of a reference. Raises UsageError when there is none."""
        found = self._git(
            "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}"
        )
        if found.code != 0:
            raise UsageError(
                f"{ref}: git knows no such commit in {self.folder}; name a branch, a tag or a "
                "commit, or fetch it first."
            )
        return found.output.strip()

    def head(self) -> str | None:
        """Return the commit that the files are of; None outside a repository."""
        found = self._git("rev-parse", "--verify", "--quiet", "HEAD")
        return found.output.strip() if found.code == 0 else None

    def has(self, commit: str) -> bool:
        """True when git has a commit here; a shallow clone has the latest ones alone."""
        return self._git("cat-file", "-e", f"{commit}^{{commit}}").code == 0

    def is_merged(self, commit: str) -> bool:
        """True when the branch that changes are compared with holds a commit; without it: HEAD."""
        base = self.default_base()
        known = self._git("rev-parse", "--verify", "--quiet", base).code == 0
        ref = base if known else "HEAD"
        return self._git("merge-base", "--is-ancestor", commit, ref).code == 0

    def versions(self, file: str) -> Iterator[str]:
        """Yield the texts that a file had at the commits that changed it, the latest first."""
        for commit in self._git("log", "--format=%H", "--", file).output.split():
            shown = self._git("show", f"{commit}:./{file}")
            if shown.code == 0:
                yield shown.output

    def default_base(self) -> str:
        """Return the branch that changes are compared with: origin/main where git knows it."""
        known = self._git("rev-parse", "--verify", "--quiet", "origin/main").code == 0
        return "origin/main" if known else "main"

    def merge_base(self, one: str, other: str) -> str:
        """Return the commit that two commits have in common; `one` where there is none."""
        found = self._git("merge-base", one, other)
        return found.output.strip() if found.code == 0 else one

    def differ(self, one: str, other: str, paths: Sequence[str]) -> bool:
        """True when these files or folders differ between two commits, or one is not here."""
        return self._git("diff", "--quiet", one, other, "--", *paths).code != 0

    def is_dirty(self, *, but: Sequence[str] = ()) -> bool:
        """True when files of the tree, but those of some folders, are not committed as they are."""
        left_out = [f":(exclude){folder}" for folder in but]
        return bool(self._git("status", "--porcelain", "--", ".", *left_out).output.strip())

    def changed_files(self, base: str) -> tuple[str, ...]:
        """Return the files of the repository that differ from a commit, new ones too."""
        changed = self._git("diff", "--name-only", "-z", base).output
        new = self._git("ls-files", "--others", "--exclude-standard", "-z", "--full-name").output
        return tuple(sorted({name for name in f"{changed}\0{new}".split("\0") if name}))

    def prefix(self) -> str:
        """Return the folder's path in its repository, with a slash at its end; empty: the root."""
        return self._git("rev-parse", "--show-prefix").output.strip()

    def export(self, commit: str, paths: Sequence[str], destination: Path) -> None:
        """Write files and folders of a commit, as far as it has them, below a destination."""
        listed = self._git("ls-tree", "--name-only", "-z", commit, "--", *paths)
        present = [name for name in listed.output.split("\0") if name]
        destination.mkdir(parents=True, exist_ok=True)
        if not present:
            return
        packed = destination / ".export.tar"
        options = ("--format=tar", f"--output={packed}")
        archive = self._git("archive", *options, commit, "--", *present)
        if archive.code != 0:
            raise NotReadyError(f"git archive {commit} failed: {archive.last_lines()}.")
        with tarfile.open(packed) as files:
            files.extractall(destination, filter="data")
        packed.unlink()

    def _git(self, *arguments: str) -> Outcome:
        outcome = self.run(Command(argv=("git", *arguments), folder=self.folder))
        if outcome.code == PROGRAM_MISSING:
            raise NotReadyError(
                "git is not installed, and a plan compares two revisions; install it."
            )
        return outcome


def export_revision(git: Git, commit: str, destination: Path) -> Tree:
    """Write the onboarding files of a commit, and what they name elsewhere, into a folder; read it.

    That is locks, and the files of text generators.
    """
    git.export(commit, ONBOARDING_FOLDERS, destination)
    tree = read_tree(destination)
    outside = sorted(
        path for path in named_paths(tree) if PurePosixPath(path).parts[0] not in ONBOARDING_FOLDERS
    )
    if not outside:
        return tree
    git.export(commit, outside, destination)
    return read_tree(destination)


def named_paths(tree: Tree) -> frozenset[str]:
    """Return the folders of locks, and the files and folders of text generators, of a tree."""
    generators = (file.spec for view in tree.views.values() for file in view.generators.values())
    named = (
        *(item.locks for item in tree.environments.values()),
        *(path for spec in generators for path in generator_paths(spec)),
    )
    paths = (PurePosixPath(path) for path in named)
    return frozenset(
        path.as_posix()
        for path in paths
        if path.parts and not path.is_absolute() and ".." not in path.parts
    )


def is_data_only(git: Git, changed: Sequence[str]) -> bool:
    """True when a change touches files of the onboarding tree and locks alone."""
    prefix = git.prefix()
    return all(
        name.startswith(tuple(f"{prefix}{folder}/" for folder in ONBOARDING_FOLDERS))
        or name.endswith(".lock.yaml")
        for name in changed
    )
