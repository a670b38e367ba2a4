"""What every build has, of whatever kind: settings, a work folder, tools, and an answer."""

from __future__ import annotations

import fcntl
import math
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from engine_build.errors import InputRefused
from engine_build.log import Log
from engine_build.runner import Runner
from engine_build.store import HALF_WRITTEN, FolderStore, Store
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


VLLM_PYTHON = "ROUNDHOUSE_VLLM_PYTHON"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Facts that only the machine that starts a build knows."""

    source_commit: str | None = None
    image: str | None = None
    forward_compatible: bool = False
    """NVIDIA's image uses its own CUDA driver libraries, which run on the host's driver."""
    benchmark_seconds: float = 10.0
    """For all shapes together; one round of each is never left out."""
    vllm_python: str | None = None
    """An interpreter with vLLM, which measures text generators; None: they are not measured."""
    speed_on_cpu: bool = False
    """Text generators are measured on a machine without a GPU too, as tests do."""


def settings(environment: Mapping[str, str]) -> Settings:
    """Read a process environment; an empty variable counts as unset. Raises InputRefused."""
    variables = {name: value for name, value in environment.items() if value}
    image = variables.get("ROUNDHOUSE_IMAGE", variables.get("CODEBUILD_BUILD_IMAGE"))
    text = variables.get("ROUNDHOUSE_BENCHMARK_SECONDS")
    try:
        seconds = Settings.benchmark_seconds if text is None else float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise InputRefused(
            f"ROUNDHOUSE_BENCHMARK_SECONDS is {text!r}; give a number of seconds, 0 or more, such "
            "as 10."
        )
    python = variables.get(VLLM_PYTHON)
    if python is not None and not os.access(python, os.X_OK):
        raise InputRefused(
            f"{VLLM_PYTHON} is {python}, which is no program of this machine; name the interpreter "
            "of an environment with vLLM, or unset it."
        )
    return Settings(
        source_commit=variables.get("ROUNDHOUSE_SOURCE_COMMIT"),
        image=image,
        forward_compatible=variables.get("_CUDA_COMPAT_STATUS") == "CUDA Driver OK",
        benchmark_seconds=seconds,
        vllm_python=python,
        speed_on_cpu=variables.get("ROUNDHOUSE_SPEED_ON_CPU") == "true",
    )


Status = Literal["known", "built", "candidate"]
VERBS: dict[Status, str] = {
    "known": "is there already",
    "built": "is built",
    "candidate": "is built, and published once it is signed",
}
"""What is said of an engine or a checkpoint, by the status of its build."""


@dataclass(frozen=True, kw_only=True)
class Tools:
    """One build's tools."""

    settings: Settings
    log: Log
    runner: Runner
    work: WorkFolder
    publish_to: Store | None
    candidate: str | None
    """The candidate that is published; None: what is built is published at once, unsigned."""

    @property
    def new_status(self) -> Status:
        """The status of what this build builds."""
        return "built" if self.candidate is None else "candidate"


class Answer(NamedTuple):
    """The result of a build: fields for JSON, and a sentence."""

    fields: dict[str, Any]
    text: str
