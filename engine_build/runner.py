"""The one place that starts processes."""

from __future__ import annotations

import os
import selectors
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from engine_build.log import Log

TICK_SECONDS = 1.0
"""Between two words on how long a process runs already."""
LOGS = "logs"


@dataclass(frozen=True, kw_only=True)
class Command:
    """A program and its arguments; never a shell line."""

    argv: tuple[str, ...]
    timeout_seconds: float = 900

    def __str__(self) -> str:
        return shlex.join(self.argv)

    @property
    def name(self) -> str:
        """The program in a word: trtexec, or the module that an interpreter runs."""
        return self.argv[2] if self.argv[1:2] == ("-m",) else Path(self.argv[0]).name


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a command ended; a negative code is the signal that killed it."""

    code: int
    output: str
    errors: str

    @property
    def how(self) -> str:
        """As a verb's phrase: with its code, or by which signal."""
        if self.code == -signal.SIGKILL:
            return f"was killed by signal {signal.SIGKILL:d}, most often for want of memory,"
        return (
            f"was killed by signal {-self.code}"
            if self.code < 0
            else f"ended with code {self.code}"
        )


class Runner(Protocol):
    """Runs commands."""

    def run(self, command: Command) -> Ended:
        """Runs a command to its end, and never raises for how it ended."""
        ...

    def find(self, program: str) -> str | None:
        """Where a program lies on this machine."""
        ...


class ProcessRunner:
    """Run real processes, each printed before it starts.

    Leaves a script that runs them again, and a log of each.
    """

    def __init__(self, log: Log, *, tick_seconds: float = TICK_SECONDS) -> None:
        self._log = log
        self._tick_seconds = tick_seconds
        self._script: Path | None = None
        self._logs: Path | None = None
        self._count = 0

    def record(self, script: Path) -> None:
        """Write every further command to a script.

        Its output goes to a file NN-name.log of the folder `logs` beside it.
        """
        script.write_text(
            "#!/bin/sh\n# The processes of the last build, in order.\nset -e\n", encoding="utf-8"
        )
        self._script = script
        self._logs = script.parent / LOGS
        shutil.rmtree(self._logs, ignore_errors=True)
        self._logs.mkdir()

    def run(self, command: Command) -> Ended:
        """Run a command.

        What it writes goes to its log line by line, and at the end to the build's.
        """
        self._log.line(f"  $ {command}")
        self._count += 1
        if self._script is not None:
            with self._script.open("a", encoding="utf-8") as file:
                file.write(f"{command}\n")
        ended = self._wait_for_end(command)
        for text in filter(None, (ended.output.strip(), ended.errors.strip())):
            self._log.note(text)
        return ended

    def find(self, program: str) -> str | None:
        """Looks along PATH."""
        return shutil.which(program)

    def _wait_for_end(self, command: Command) -> Ended:
        path = (
            os.devnull
            if self._logs is None
            else self._logs / f"{self._count:02}-{command.name}.log"
        )
        with Path(path).open("wb") as file:
            try:
                # A session of its own, so that a process ends together with those that it started.
                process = subprocess.Popen(
                    command.argv,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    start_new_session=True,
                )
            except OSError as error:
                return Ended(code=127, output="", errors=f"cannot be started: {error.strerror}")
            with process:
                listening = _OutputReader(
                    process,
                    file,
                    self._tick_seconds,
                    lambda seconds: self._report(command, seconds),
                )
                try:
                    in_time = listening.until(time.monotonic() + command.timeout_seconds)
                finally:
                    _end(process)
        output, errors = listening.texts()
        if not in_time:
            return Ended(
                code=124,
                output=output,
                errors=f"{errors}still running after {command.timeout_seconds:g} seconds; stopped",
            )
        return Ended(code=process.returncode, output=output, errors=errors)

    def _report(self, command: Command, seconds: float) -> None:
        self._log.progress(f"{command.name}, {seconds:.0f} seconds")


class _OutputReader:
    """Reads what a process writes as it comes, into its log and into memory."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        file: IO[bytes],
        tick_seconds: float,
        report: Callable[[float], None],
    ) -> None:
        assert process.stdout is not None and process.stderr is not None
        self._process = process
        self._streams = (process.stdout, process.stderr)
        self._heard: dict[int, list[bytes]] = {stream.fileno(): [] for stream in self._streams}
        self._file = file
        self._tick_seconds = tick_seconds
        self._report = report

    def until(self, end: float) -> bool:
        """True when the process ended by itself; False at the end of its time."""
        begin = reported = time.monotonic()
        with selectors.DefaultSelector() as selector:
            for stream in self._streams:
                selector.register(stream, selectors.EVENT_READ)
            while selector.get_map():
                now = time.monotonic()
                if now >= end:
                    return False
                if now >= reported + self._tick_seconds:
                    reported = now
                    self._report(now - begin)
                for key, _ in selector.select(min(self._tick_seconds, end - now)):
                    if not self._hear(key.fd):
                        selector.unregister(key.fileobj)
        try:
            self._process.wait(max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            return False
        return True

    def texts(self) -> tuple[str, str]:
        """What came on the two streams."""
        output, errors = (
            b"".join(parts).decode("utf-8", "replace") for parts in self._heard.values()
        )
        return output, errors

    def _hear(self, stream: int) -> bool:
        part = os.read(stream, 1 << 16)
        self._heard[stream].append(part)
        self._file.write(part)
        self._file.flush()
        return bool(part)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kills what is left of a process's session."""
    if process.poll() is None:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
