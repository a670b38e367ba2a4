"""Where things lie: the code, the onboarding tree, and what the command writes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from roundhouse.errors import RoundhouseError

CODE_MARKS = ("cdk.json", "onboarding")
TREE_FOLDERS = ("models", "endpoints", "environments")


@dataclass(frozen=True, kw_only=True)
class Places:
    """`code` is the repository; `tree` holds models/, endpoints/ and environments/: the same
    folder, or that of --root.

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


def places(start: Path, root: Path | None = None) -> Places:
    """Finds the repository from any folder inside it, or from this file when `start` lies outside.

    Raises RoundhouseError.
    """
    code = _enclosing_repository(start)
    if code is None:
        code = _enclosing_repository(Path(__file__).resolve().parent)
    if code is None:
        raise RoundhouseError(
            f"{start}: not inside a Roundhouse repository (no cdk.json above); change into one."
        )
    return Places(code=code, tree=code if root is None else _tree(root), build=code / "build")


def _enclosing_repository(start: Path) -> Path | None:
    candidates = (start.resolve(), *start.resolve().parents)
    return next(
        (folder for folder in candidates if all((folder / mark).exists() for mark in CODE_MARKS)),
        None,
    )


def _tree(root: Path) -> Path:
    if not any((root / folder).is_dir() for folder in TREE_FOLDERS):
        raise RoundhouseError(
            f"--root {root}: is no onboarding tree; it must hold {', '.join(f'{f}/' for f in TREE_FOLDERS)}."
        )
    return root.resolve()
