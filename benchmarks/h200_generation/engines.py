"""Programs of an experiment: started, given commands in lines of JSON, and ended.

Each runs in a process group of its own, which is ended before another engine needs its memory.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from roundhouse.processes import end

PROGRAMS = "benchmarks.h200_generation.programs"
REPOSITORY = Path(__file__).resolve().parents[2]
READY_SECONDS, FREE_SECONDS, POLL_SECONDS = 240.0, 30.0, 0.2
CACHE_LINES = {
    "kv_tokens": (re.compile(r"KV cache size: ([\d,]+) tokens"), int),
    "kv_gib": (re.compile(r"Available KV cache memory: ([\d.]+) GiB"), float),
    "weights_gib": (re.compile(r"Model loading took ([\d.]+) GiB"), float),
    "load_seconds": (re.compile(r"Model loading took .* ([\d.]+) seconds"), float),
    "compile_seconds": (re.compile(r"torch\.compile .* ([\d.]+) s"), float),
    "graphs_seconds": (re.compile(r"Graph capturing finished in ([\d.]+) sec"), float),
    "graphs_gib": (re.compile(r"Graph capturing finished .* took ([\d.-]+) GiB"), float),
    "attention": (re.compile(r"Using (\w+) attention backend|Using (\w+) backend"), str),
}
ERROR = re.compile(r"\b\w*(?:Error|Exception): .+")


def cache_report(log: str) -> dict[str, Any]:
    """Return what vLLM logged of its memory and start, by name; what it did not log is left out."""
    found: dict[str, Any] = {}
    for name, (pattern, kind) in CACHE_LINES.items():
        if match := pattern.search(log):
            text = next(group for group in match.groups() if group is not None)
            found[name] = kind(text.replace(",", ""))
    return found


def error_line(log: str) -> str:
    """Return the last error of a log, in vLLM's words; without one, its last line."""
    errors = ERROR.findall(log)
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return str(errors[-1] if errors else lines[-1] if lines else "no output")[:600]


def wait_for_free_memory(before_mib: int) -> None:
    """Wait until the GPU holds no more than before an engine was started."""
    deadline = time.monotonic() + FREE_SECONDS
    while memory_mib() > before_mib + 256 and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)


def memory_mib() -> int:
    """Return the memory that is taken on the first GPU; 0 on a machine without one."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return 0
    command = (program, "--query-gpu=memory.used", "--format=csv,noheader,nounits", "--id=0")
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


class Program:
    """A program of `programs` that answers lines of JSON; `ready` is what it said first."""

    def __init__(self, name: str, *arguments: str) -> None:
        self.name, self.before_mib = name, memory_mib()
        self.process = subprocess.Popen(
            (sys.executable, "-m", f"{PROGRAMS}.{name}", *arguments),
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def read(self) -> Any:
        """Return the next line. Raises ValueError when the program has ended."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise ValueError(f"{self.name} ended with {self.process.wait()}")
        return json.loads(line) if line.startswith(("{", "[")) else line.strip()

    def send(self, command: Mapping[str, Any]) -> None:
        """Write one command."""
        assert self.process.stdin is not None
        print(json.dumps(command), file=self.process.stdin, flush=True)

    def ask(self, command: Mapping[str, Any]) -> Any:
        """Write one command, and return its answer."""
        self.send(command)
        return self.read()

    def close(self) -> None:
        """End the program and all that it started, and wait until their memory is free."""
        end(self.process)
        wait_for_free_memory(self.before_mib)


@contextlib.contextmanager
def program(name: str, *arguments: str) -> Iterator[Program]:
    """Start a program, and end it at last."""
    running = Program(name, *arguments)
    try:
        yield running
    finally:
        running.close()


@contextlib.contextmanager
def server(
    argv: Sequence[str], port: int, log: Path, variables: Mapping[str, str]
) -> Iterator[float]:
    """Start a server; the value is the seconds until /ping was answered. Raises ValueError."""
    before, begin = memory_mib(), time.monotonic()
    with log.open("wb") as output:
        process = _start_server(argv, output, variables)
    try:
        while not _is_ready(port):
            if process.poll() is not None or time.monotonic() > begin + READY_SECONDS:
                text = log.read_text(encoding="utf-8", errors="replace")
                raise ValueError(f"{argv[2]} is not ready: {error_line(text)}")
            time.sleep(POLL_SECONDS)
        yield time.monotonic() - begin
    finally:
        end(process, grace_seconds=20.0)
        wait_for_free_memory(before)


def _start_server(
    argv: Sequence[str], output: IO[bytes], variables: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        argv,
        cwd=REPOSITORY,
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def _is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/ping", timeout=5) as response:
            return int(response.status) == 200
    except OSError:
        return False
