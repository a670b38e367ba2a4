"""Where things lie: the code, the onboarding tree, and what the command writes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from roundhouse.errors import NotReadyError, RoundhouseError, UsageError

REPOSITORY_FILES = ("cdk.json", "onboarding")
TREE_FOLDERS = ("models", "endpoints", "environments")


@dataclass(frozen=True, kw_only=True)
class Paths:
    """`code` is the repository.

    `tree` holds models/, endpoints/ and environments/: the same folder, or that of --root.

    `build` is where the command writes, locks apart.
    """

    code: Path
    tree: Path
    build: Path

    def venv_python(self, name: str) -> Path:
        """The interpreter of one environment: roundhouse, builder, server, triton or cloud."""
        folder = self.code / ".venv" if name == "roundhouse" else self.code / ".venvs" / name
        return folder / "bin" / "python"

    @property
    def cdk(self) -> Path:
        """The pinned cdk command line."""
        return self.code / "node_modules" / ".bin" / "cdk"


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
    """Find the repository from any folder inside it, or from this file when `start` lies outside.

    Raises RoundhouseError.
    """
    code = _enclosing_repository(start)
    if code is None:
        code = _enclosing_repository(Path(__file__).resolve().parent)
    if code is None:
        raise RoundhouseError(
            f"{start}: not inside a Roundhouse repository (no cdk.json above); change into one."
        )
    return Paths(code=code, tree=code if root is None else _tree(root), build=code / "build")


def _enclosing_repository(start: Path) -> Path | None:
    candidates = (start.resolve(), *start.resolve().parents)
    return next(
        (
            folder
            for folder in candidates
            if all((folder / name).exists() for name in REPOSITORY_FILES)
        ),
        None,
    )


def _tree(root: Path) -> Path:
    if not any((root / folder).is_dir() for folder in TREE_FOLDERS):
        names = ", ".join(f"{name}/" for name in TREE_FOLDERS)
        raise UsageError(f"--root {root}: is no onboarding tree; it must hold {names}.")
    return root.resolve()


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
