"""Processes of the command: this is the only module that starts any.

Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Protocol

GRACE_SECONDS = 5.0
GONE_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class Command:
    """One process to run; `environment` None is this process's own."""

    argv: tuple[str, ...]
    folder: Path | None = None
    environment: Mapping[str, str] | None = None
    stdin: str | None = None

    def __str__(self) -> str:
        return shlex.join(self.argv)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a process ended.

    Exit status, and standard output and error as one text. 127: no such program.
    """

    code: int
    output: str

    def last_lines(self, count: int = 3) -> str:
        """Return the last lines that are not empty, as one line."""
        lines = [line.strip() for line in self.output.splitlines() if line.strip()]
        return " | ".join(lines[-count:])


class Run(Protocol):
    """Run a command to its end, handing over each line as it comes."""

    def __call__(
        self, command: Command, on_line: Callable[[str], None] | None = None
    ) -> Outcome: ...


@dataclass(frozen=True)
class Processes:
    """The real runner. Ctrl-C, or any error while a process runs, ends its whole process group."""

    live: set[subprocess.Popen[str]] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)
    stopped: threading.Event = field(default_factory=threading.Event)

    def __call__(self, command: Command, on_line: Callable[[str], None] | None = None) -> Outcome:
        try:
            process = self._start(command)
        except OSError as error:
            return Outcome(code=127, output=f"{command.argv[0]}: {error.strerror}")
        try:
            output = _read(process, command.stdin, on_line)
            return Outcome(code=process.wait(), output=output)
        finally:
            end(process)
            with self.lock:
                self.live.discard(process)

    def stop(self) -> None:
        """End whatever still runs, from any thread, and let nothing start afterwards."""
        self.stopped.set()
        with self.lock:
            running = tuple(self.live)
        for process in running:
            end(process)

    def _start(self, command: Command) -> subprocess.Popen[str]:
        with self.lock:
            if self.stopped.is_set():
                raise OSError(0, "", command.argv[0])
            process = subprocess.Popen(
                command.argv,
                cwd=command.folder,
                env=None if command.environment is None else dict(command.environment),
                stdin=subprocess.DEVNULL if command.stdin is None else subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,
            )
            self.live.add(process)
            return process


def end(process: subprocess.Popen[Any], grace_seconds: float = GRACE_SECONDS) -> None:
    """Ask a process group to end, then kill it; a group that is gone is fine."""
    if process.poll() is None:
        _signal(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(grace_seconds)
    _signal(process.pid, signal.SIGKILL)
    process.wait()
    _until_gone(process.pid)
    if process.stdout is not None:
        process.stdout.close()


def _signal(group: int, number: int) -> bool:
    """Signal a process group; False when it is gone."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _until_gone(group: int) -> None:
    """Wait a moment for killed processes; one that nobody reaps is not waited for."""
    deadline = time.monotonic() + GONE_SECONDS
    while _signal(group, 0) and time.monotonic() < deadline:
        time.sleep(0.005)


def _read(
    process: subprocess.Popen[str], stdin: str | None, on_line: Callable[[str], None] | None
) -> str:
    if stdin is not None and process.stdin is not None:
        threading.Thread(target=_feed, args=(process.stdin, stdin), daemon=True).start()
    lines: list[str] = []
    assert process.stdout is not None
    for line in process.stdout:
        lines.append(line)
        if on_line is not None:
            on_line(line.rstrip("\n"))
    return "".join(lines)


def _feed(pipe: IO[str], text: str) -> None:
    try:
        with pipe:
            pipe.write(text)
    except OSError:
        pass
