"""The one place that starts processes."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from engine_build.log import Log


@dataclass(frozen=True, kw_only=True)
class Command:
    """A program and its arguments; never a shell line."""

    argv: tuple[str, ...]
    timeout_seconds: float = 900

    def __str__(self) -> str:
        return shlex.join(self.argv)


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a command ended; a negative code is the signal that killed it."""

    code: int
    output: str
    errors: str


class Runner(Protocol):
    """Runs commands."""

    def run(self, command: Command) -> Ended:
        """Runs a command to its end, and never raises for how it ended."""
        ...

    def find(self, program: str) -> str | None:
        """Where a program lies on this machine."""
        ...


class ProcessRunner:
    """Runs real processes; prints each before it starts and leaves a script that runs them again."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._script: Path | None = None

    def record(self, script: Path) -> None:
        """Writes every further command to a script."""
        script.write_text("#!/bin/sh\n# The processes of the last build, in order.\nset -e\n", encoding="utf-8")
        self._script = script

    def run(self, command: Command) -> Ended:
        """Runs a command; what it writes goes to the log's file."""
        self._log.line(f"  $ {command}")
        if self._script is not None:
            with self._script.open("a", encoding="utf-8") as file:
                file.write(f"{command}\n")
        ended = self._ended(command)
        for text in filter(None, (ended.output.strip(), ended.errors.strip())):
            self._log.note(text)
        return ended

    def find(self, program: str) -> str | None:
        """Looks along PATH."""
        return shutil.which(program)

    def _ended(self, command: Command) -> Ended:
        try:
            done = subprocess.run(
                command.argv,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                timeout=command.timeout_seconds,
                stdin=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired:
            return Ended(code=124, output="", errors=f"still running after {command.timeout_seconds:g} seconds; stopped")
        except OSError as error:
            return Ended(code=127, output="", errors=f"cannot be started: {error.strerror}")
        return Ended(code=done.returncode, output=done.stdout, errors=done.stderr)
