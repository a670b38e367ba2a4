"""The folder of one build, which the next one goes on from where a build was killed."""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path

from engine_build.errors import InputRefused
from engine_build.store import HALF_WRITTEN, FolderStore
from onboarding.names import ENGINES_PREFIX, NETWORKS_PREFIX, TIMING_CACHES_PREFIX

SCRATCH = "scratch"
KEPT = (NETWORKS_PREFIX, ENGINES_PREFIX, TIMING_CACHES_PREFIX, "ranges")
"""Folders of the store."""


class WorkFolder:
    """Held by one build at a time; `store` has what is finished, under its published names.

    `is_fresh`: nothing of an earlier build is taken over. A candidate's is: what lies in its folder
    may come from a build of another tree, which nobody reviewed.
    """

    def __init__(self, path: Path, *, is_fresh: bool = False) -> None:
        self.path = path
        self._is_fresh = is_fresh
        self.store = FolderStore(path)
        self.log_path = path / "build.log"
        self.script_path = path / "reproduce.sh"
        """The script that repeats the build's processes."""
        self._handle: int | None = None

    def __enter__(self) -> WorkFolder:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._handle = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._empty() if self._is_fresh else self._empty_scratch()
            self.log_path.write_text("", encoding="utf-8")
        except InputRefused:
            self._release()
            raise
        except OSError as error:
            self._release()
            if isinstance(error, BlockingIOError):
                fault = "is in use by another build; wait for it, or name another folder."
            else:
                fault = f"cannot be used: {error.strerror}; name a folder that can be written."
            raise InputRefused(f"--out {self.path} {fault}") from error
        return self

    def __exit__(self, *error: object) -> None:
        shutil.rmtree(self.path / SCRATCH, ignore_errors=True)
        self._release()

    def scratch(self, name: str) -> Path:
        """A fresh folder for half-done work; gone when the build ends, or when the next begins."""
        folder = self.path / SCRATCH / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder

    def _empty(self) -> None:
        """Delete what an earlier build left. Raises InputRefused for a folder of no build."""
        paths = sorted(self.path.iterdir())
        if paths and self.log_path not in paths:
            raise InputRefused(
                f"--out {self.path} holds {paths[0].name} and no log of a build, and a candidate "
                "is built in an empty folder; name another one."
            )
        for path in paths:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()

    def _empty_scratch(self) -> None:
        """Delete half-done work, and what a killed build was writing into the store."""
        shutil.rmtree(self.path / SCRATCH, ignore_errors=True)
        for folder in KEPT:
            for left in list((self.path / folder).rglob(f"{HALF_WRITTEN}*")):
                left.unlink(missing_ok=True)

    def _release(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
