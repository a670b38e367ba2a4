"""Where things lie: the code, a team's repository, its onboarding tree, what the command writes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from roundhouse.errors import NotReadyError, RoundhouseError, UsageError

CODE = Path(__file__).resolve().parents[1]
"""Where the packages lie: a checkout of Roundhouse, or one folder below site-packages."""
REPOSITORY_FILES = ("cdk.json", "environments")
TREE_FOLDERS = ("models", "endpoints", "environments")


@dataclass(frozen=True, kw_only=True)
class Paths:
    """`code` holds the packages, and what images and builders are made of.

    `team` is the repository of a team that installed them; None: `code` is a checkout, and the
    repository itself.

    `tree` holds models/, endpoints/ and environments/: the repository, or the folder of --root.

    `build` is where the command writes, locks apart.
    """

    code: Path
    tree: Path
    build: Path
    team: Path | None = None

    @property
    def repository(self) -> Path:
        """The folder of app.py and cdk.json, beside which environments are made."""
        return self.code if self.team is None else self.team

    @property
    def is_installed(self) -> bool:
        """Return whether the packages were installed: beside them lies the wheel's path file."""
        return (self.code.parent / "roundhouse.pth").is_file()

    @property
    def environments(self) -> Path:
        """The folder of the environments that builds, servers and the local cloud run in."""
        return self.repository / ".venvs"

    @property
    def builder_python(self) -> Path:
        """The builder environment's interpreter, or the running one where it is not made."""
        builder = self.environments / "builder" / "bin" / "python"
        return builder if builder.is_file() else Path(sys.executable)

    @property
    def cdk(self) -> Path:
        """The pinned cdk command line."""
        return self.repository / "node_modules" / ".bin" / "cdk"


def current_paths(root: Path | None = None) -> Paths:
    """Return the paths of the folder that the command was called in. Raises NotReadyError."""
    return find_paths(current_folder(), root)


def current_folder() -> Path:
    """Return the current folder. Raises NotReadyError when it is gone."""
    try:
        return Path.cwd()
    except FileNotFoundError as error:
        raise NotReadyError(
            "The current folder is gone; change into one that is there (`cd`), then try again."
        ) from error


def displayed_path(path: Path) -> str:
    """Return a path relative to the current folder where it lies inside, else whole."""
    folder = current_folder()
    return path.relative_to(folder).as_posix() if path.is_relative_to(folder) else str(path)


def find_paths(start: Path, root: Path | None = None) -> Paths:
    """Find the repository from any folder inside it; from outside, the checkout that runs.

    Raises RoundhouseError where there is neither.
    """
    repository = enclosing_repository(start) or enclosing_repository(CODE)
    if repository is None:
        raise RoundhouseError(
            f"{start}: not inside a repository of Roundhouse (no folder above has "
            f"{' and '.join(REPOSITORY_FILES)}); change into one, or `roundhouse init` makes one "
            "here."
        )
    return Paths(
        code=CODE,
        team=None if repository == CODE else repository,
        tree=repository if root is None else _tree(root),
        build=repository / "build",
    )


def enclosing_repository(start: Path) -> Path | None:
    """Return the nearest folder, `start` or above it, that is a repository."""
    for folder in (start.resolve(), *start.resolve().parents):
        if all((folder / name).exists() for name in REPOSITORY_FILES):
            return folder
    return None


def _tree(root: Path) -> Path:
    if not any((root / folder).is_dir() for folder in TREE_FOLDERS):
        names = ", ".join(f"{name}/" for name in TREE_FOLDERS)
        raise UsageError(f"--root {root}: is no onboarding tree; it must hold {names}.")
    return root.resolve()


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Say that a path cannot be written where the block fails to. Raises NotReadyError."""
    try:
        yield
    except OSError as error:
        raise NotReadyError(
            f"{path}: cannot be written ({error.strerror}); free the folder, then try again."
        ) from error


@contextmanager
def output_folder(folder: Path) -> Iterator[None]:
    """Make the folder of a report that the block writes. Raises RoundhouseError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise RoundhouseError(
            f"{folder}: {error.strerror}; make it a folder that can be written."
        ) from error
