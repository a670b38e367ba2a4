"""The onboarding files that an environment deploys: as they are, or those of its promotion."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from onboarding.promotion import FOLDER, Promotion, promotion_path, read_promotion
from roundhouse.errors import NotReadyError, RoundhouseError
from roundhouse.paths import Paths
from roundhouse.processes import Run
from roundhouse.revisions import Git, export_revision

COMPLETE = ".complete"
"""Written last into an exported folder."""


def environment_paths(paths: Paths, environment: str, run: Run) -> Paths:
    """Return an environment's paths: its tree is that of its promotion's commit, if it has one.

    Raises LockError for a promotion that cannot be read, RoundhouseError for a commit that git does
    not have here.
    """
    promotion = read_promotion(paths.tree, environment)
    if promotion is None:
        return paths
    git = Git(folder=paths.tree, run=run)
    return replace(paths, tree=promoted_folder(promotion, git, paths.build))


def promoted_folder(promotion: Promotion, git: Git, build: Path) -> Path:
    """Return the folder with the files of a promotion's commit, exported once below build/."""
    folder = build / FOLDER / promotion.environment / promotion.commit
    if (folder / COMPLETE).exists():
        return folder
    if not git.has(promotion.commit):
        file = promotion_path(git.folder, promotion.environment)
        raise RoundhouseError(
            f"{file}: git does not have commit {promotion.commit} here; fetch the whole history "
            "(`git fetch --unshallow`, or `fetch-depth: 0` in a workflow), then try again."
        )
    try:
        shutil.rmtree(folder, ignore_errors=True)
        export_revision(git, promotion.commit, folder)
        # The commit's own promotions are of the time before.
        shutil.rmtree(folder / FOLDER, ignore_errors=True)
        (folder / COMPLETE).touch()
    except OSError as error:
        raise NotReadyError(
            f"{folder}: cannot be written ({error.strerror}); free the folder, then try again."
        ) from error
    return folder
