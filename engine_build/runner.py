"""The one place that starts processes."""

from __future__ import annotations

import ctypes
import json
import os
import selectors
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine_build.log import Log

TICK_SECONDS = 1.0
"""Between two reports of how long a process runs already."""
TIMED_OUT = 124
"""Code of a command that was stopped at the end of its time, as timeout(1) has it."""
LAST_OUTPUT_SECONDS = 10.0
"""For reading what is left in the streams of a process that has ended."""
PR_SET_PDEATHSIG = 1
"""prctl(2): the signal that a process gets when the thread that started it ends."""


@dataclass(frozen=True, kw_only=True)
class Command:
    """A program and its arguments; never a shell line."""

    argv: tuple[str, ...]
    timeout_seconds: float = 900
    variables: Mapping[str, str] = field(default_factory=dict)
    """Beside this process's own; neither printed nor written to the script."""
    shown_lines: int = 0
    """First lines of its output that the build's own output has too; its log file has all."""

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
        verb = "was killed by signal" if self.code < 0 else "ended with code"
        return f"{verb} {abs(self.code)}"

    @property
    def last_error(self) -> str:
        """The last line of the error output."""
        return (self.errors.strip().splitlines() or ["no error output"])[-1]

    @property
    def report(self) -> dict[str, Any]:
        """The JSON object in the last line of the output; empty where there is none."""
        try:
            report = json.loads(self.output.strip().splitlines()[-1])
        except (IndexError, ValueError):
            return {}
        return report if isinstance(report, dict) else {}


class Runner:
    """Runs processes, each printed before it starts.

    Leaves a script that runs them again, and a log of each.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._script: Path | None = None
        self._count = 0

    def record(self, script: Path) -> None:
        """Write every further command to a script.

        Its output goes to a file NN-name.log of the folder `logs` beside it.
        """
        script.write_text(
            "#!/bin/sh\n# The processes of the last build, in order.\nset -e\n", encoding="utf-8"
        )
        self._script = script
        shutil.rmtree(script.parent / "logs", ignore_errors=True)
        (script.parent / "logs").mkdir()

    def run(self, command: Command) -> Ended:
        """Run a command to its end, and never raise for how it ended.

        Its output is logged line by line, and in the build's log at the end.
        """
        self._log.line(f"  $ {command}")
        self._count += 1
        path = Path(os.devnull)
        if self._script is not None:
            path = self._script.parent / f"logs/{self._count:02}-{command.name}.log"
            with self._script.open("a", encoding="utf-8") as file:
                file.write(f"{command}\n")
        ended = self._wait_for_end(command, path)
        for text in filter(None, (ended.output.strip(), ended.errors.strip())):
            self._log.note(text)
        for line in (ended.output + ended.errors).splitlines()[: command.shown_lines]:
            self._log.line(f"  | {line}")
        return ended

    def find(self, program: str) -> str | None:
        """Where a program lies on this machine, along PATH."""
        return shutil.which(program)

    def _wait_for_end(self, command: Command, path: Path) -> Ended:
        try:
            # A session of its own, so that a process ends with those that it started.
            process = subprocess.Popen(
                command.argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**os.environ, **command.variables},
                start_new_session=True,
                preexec_fn=_before_start(),
            )
        except OSError as error:
            return Ended(code=127, output="", errors=f"cannot be started: {error.strerror}")
        with process:
            assert process.stdout is not None and process.stderr is not None
            streams = (process.stdout, process.stderr)
            parts: dict[int, list[bytes]] = {stream.fileno(): [] for stream in streams}
            try:
                in_time = self._read(process, command, parts, path)
            finally:
                _end_session(process)
        output, errors = (b"".join(part).decode("utf-8", "replace") for part in parts.values())
        if in_time:
            return Ended(code=process.returncode, output=output, errors=errors)
        late = f"still running after {command.timeout_seconds:g} seconds; stopped"
        return Ended(code=TIMED_OUT, output=output, errors=errors + late)

    def _read(
        self,
        process: subprocess.Popen[bytes],
        command: Command,
        parts: dict[int, list[bytes]],
        path: Path,
    ) -> bool:
        """Read both streams into `parts` and a log as they come; False at the end of its time.

        Of a process that has ended, its session is ended too: one of it may hold the streams open.
        """
        begin = reported = time.monotonic()
        end = begin + command.timeout_seconds
        has_ended = False
        with selectors.DefaultSelector() as selector, path.open("wb", buffering=0) as log:
            for stream in parts:
                selector.register(stream, selectors.EVENT_READ)
            while selector.get_map():
                now = time.monotonic()
                if not has_ended and process.poll() is not None:
                    _end_session(process)
                    has_ended, end = True, now + LAST_OUTPUT_SECONDS
                if now >= end:
                    return has_ended
                if now >= reported + TICK_SECONDS:
                    reported = now
                    self._log.progress(f"{command.name}, {now - begin:.0f} seconds")
                for key, _ in selector.select(min(TICK_SECONDS, end - now)):
                    part = os.read(key.fd, 1 << 16)
                    parts[key.fd].append(part)
                    log.write(part)
                    if not part:
                        selector.unregister(key.fd)
        try:
            process.wait(max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            return False
        return True


def _end_session(process: subprocess.Popen[bytes]) -> None:
    """End what is left of a process's session, also where the process itself has ended."""
    with suppress(ProcessLookupError, PermissionError):  # macOS refuses a group of zombies
        os.killpg(process.pid, signal.SIGKILL)


def _before_start() -> Callable[[], None] | None:
    """Return what a new process calls before its program; None where this is not Linux.

    SIGKILL of its parent ends it at once: no plan is compiled for a build that is gone.
    """
    if sys.platform != "linux":
        return None
    # Looked up here: between fork and exec as little as possible happens.
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()
    prctl.argtypes = (ctypes.c_int, ctypes.c_ulong)

    def before_start() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it ended before the call
            os.kill(os.getpid(), signal.SIGKILL)

    return before_start
