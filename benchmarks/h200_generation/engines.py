"""Programs of an experiment: started, given commands in lines of JSON, and ended.

Each runs in a process group of its own, which is ended before another engine needs its memory.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import IO, Any

from benchmarks.h200_generation.programs.engine import serve_engine, start_engine
from roundhouse.processes import end

PROGRAMS = "benchmarks.h200_generation.programs"
REPOSITORY = Path(__file__).resolve().parents[2]
READY_SECONDS, FREE_SECONDS, STOP_SECONDS, POLL_SECONDS = 240.0, 20.0, 15.0, 0.2
CACHE_SIZE = "KV cache size:"
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
    """A program of `programs` that answers lines of JSON."""

    def __init__(self, name: str, *arguments: str) -> None:
        self.name = name
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


@contextlib.contextmanager
def program(name: str, *arguments: str) -> Iterator[Program]:
    """Start a program, and end it at last."""
    running = Program(name, *arguments)
    try:
        yield running
    finally:
        end(running.process)


class EngineProcess:
    """An engine in a fork of this process, which imports vLLM once for all of them."""

    def __init__(self, options: Mapping[str, Any], log: Path) -> None:
        self.before_mib = memory_mib()
        self.connection, other_end = multiprocessing.Pipe()
        arguments = (other_end, self.connection, options, str(log))
        self.process = fork(serve_engine, *arguments)
        other_end.close()

    def read(self) -> Any:
        """Return the next answer. Raises ValueError when the engine has ended."""
        try:
            return self.connection.recv()
        except EOFError as error:
            raise ValueError(f"the engine ended with {self.process.exitcode}") from error

    def ask(self, command: Mapping[str, Any]) -> Any:
        """Send one command, and return its answer."""
        self.connection.send(command)
        return self.read()

    def close(self) -> None:
        """End the engine, and wait until its memory is free."""
        self.connection.close()
        self.process.join(STOP_SECONDS)
        kill(self.process)
        wait_for_free_memory(self.before_mib)


@contextlib.contextmanager
def engine_process(options: Mapping[str, Any], log: Path) -> Iterator[EngineProcess]:
    """Start an engine, and end it at last."""
    running = EngineProcess(options, log)
    try:
        yield running
    finally:
        running.close()


def run_until_logged(options: Mapping[str, Any], log: Path, seconds: float) -> str:
    """Start an engine until it has logged its KV cache, or has ended; return what it logged."""
    before = memory_mib()
    log.unlink(missing_ok=True)
    process = fork(start_engine, options, str(log))
    deadline = time.monotonic() + seconds
    text = ""
    while process.is_alive() and time.monotonic() < deadline and CACHE_SIZE not in text:
        process.join(POLL_SECONDS)
        text = read_log(log)
    kill(process)
    wait_for_free_memory(before)
    return read_log(log)


def read_log(log: Path) -> str:
    """Return the text of a log; nothing while there is none."""
    return log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""


def fork(act: Callable[..., None], *arguments: Any) -> ForkProcess:
    """Start a function in a fork of this process, with vLLM imported."""
    importlib.import_module("vllm.entrypoints.llm")
    process = multiprocessing.get_context("fork").Process(target=act, args=arguments)
    process.start()
    return process


def kill(process: ForkProcess) -> None:
    """Kill a fork and the session that it may have begun."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid or 0, signal.SIGKILL)
    process.kill()
    process.join()


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
                text = read_log(log)
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
