"""The folder of one build: its log, its finished parts, its scratch.

A killed build leaves one that the next goes on from.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path
from types import TracebackType

from engine_build.errors import InputRefused
from engine_build.store import HALF_WRITTEN, FolderStore
from onboarding.names import ENGINES_PREFIX, NETWORKS_PREFIX, TIMING_CACHES_PREFIX

SCRATCH = "scratch"
KEPT = (NETWORKS_PREFIX, ENGINES_PREFIX, TIMING_CACHES_PREFIX, "ranges")
"""Folders of the store."""


class WorkFolder:
    """Held by one build at a time.

    `store` keeps finished networks and engines, under the names that are published.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.store = FolderStore(path)
        self._handle: int | None = None

    def __enter__(self) -> WorkFolder:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._handle = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
            self._hold(self._handle)
            self._empty_scratch()
            self.log_path.write_text("", encoding="utf-8")
        except OSError as error:
            self._release()
            raise InputRefused(
                f"--out {self.path} cannot be used: {error.strerror}; "
                "name a folder that can be written."
            ) from error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        shutil.rmtree(self.path / SCRATCH, ignore_errors=True)
        self._release()

    @property
    def log_path(self) -> Path:
        """The build log."""
        return self.path / "build.log"

    @property
    def script_path(self) -> Path:
        """The script that repeats the build's processes."""
        return self.path / "reproduce.sh"

    def scratch(self, name: str) -> Path:
        """A fresh folder for half-done work; gone when the build ends, or when the next begins."""
        folder = self.path / SCRATCH / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder

    def _hold(self, handle: int) -> None:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._release()
            raise InputRefused(
                f"--out {self.path} is in use by another build; wait for it, or name another "
                "folder."
            ) from error

    def _empty_scratch(self) -> None:
        """Takes away half-done work, and what a killed build was writing into the store.

        The folder is this build's alone.
        """
        shutil.rmtree(self.path / SCRATCH, ignore_errors=True)
        for folder in KEPT:
            for left in list((self.path / folder).rglob(f"{HALF_WRITTEN}*")):
                left.unlink(missing_ok=True)

    def _release(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
