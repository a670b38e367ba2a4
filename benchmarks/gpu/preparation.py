"""What a measurement needs and what takes minutes: networks, plans, and runtimes' own caches.

All networks are written at once, and each plan is compiled as soon as its network is there; what
the time is over for was not run.
"""

from __future__ import annotations

import io
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from benchmarks.gpu.engines import (
    COMPILED,
    COMPILES,
    CUDA,
    PRECISIONS,
    PROVIDER,
    TENSORRT,
    Subject,
    plan_command,
)
from engine_build.errors import BuildError, one_line
from engine_build.log import Log
from engine_build.runner import Command, Runner
from engine_build.tensorrt.plan import last_error
from engine_build.tensorrt.trtexec import PROGRAM, trtexec_version

POLL_SECONDS = 0.2
TOO_LATE = "not run: the time of the preparation was over"
NEEDS = {CUDA: "ort", PROVIDER: "fp32"}
"""The network that a runtime loads; torch.compile needs none."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """What one piece of work took, and why it failed."""

    seconds: float
    reason: str | None = None


Results = dict[tuple[str, str, str], Result]
"""By network, runtime and precision."""


class Preparation:
    """All work of a preparation, at most `jobs` compilations at once, until `seconds` are over."""

    def __init__(
        self,
        subjects: Sequence[Subject],
        *,
        seconds: float,
        jobs: int,
        keep: Callable[[Results], None],
        runner: Callable[[], Runner] = lambda: Runner(Log(io.StringIO())),
    ) -> None:
        self._subjects = subjects
        self._end = time.monotonic() + seconds
        self._places = threading.Semaphore(jobs)
        self._keep, self._lock = keep, threading.Lock()
        self._results: Results = {}
        self._runner = runner

    def run(self) -> None:
        """Prepare everything; `keep` gets all results after each one, also of what failed."""
        with ThreadPoolExecutor(64) as pool:
            written = {
                subject.name: pool.submit(self._write_networks, subject)
                for subject in self._subjects
            }
            for subject in self._subjects:
                subject.ranges()  # one after the other: modules draw from one generator
            work = [
                pool.submit(self._prepare, subject, runtime, precision, written[subject.name])
                for runtime, precision in pieces()
                for subject in self._subjects
            ]
            for future in work:
                future.result()

    def _write_networks(self, subject: Subject) -> str:
        """Return why the process that writes networks failed, or nothing."""
        return self._run_module("benchmarks.gpu.networks", subject)

    def _prepare(
        self, subject: Subject, runtime: str, precision: str, written: Future[str]
    ) -> None:
        result = self._result(subject, runtime, precision, written)
        with self._lock:
            self._results[subject.name, runtime, precision] = result
            self._keep(self._results)

    def _result(
        self, subject: Subject, runtime: str, precision: str, written: Future[str]
    ) -> Result:
        if runtime == TENSORRT and subject.plan(precision).is_file():
            return Result(seconds=0.0)
        kind = subject.network(precision).stem if runtime == TENSORRT else NEEDS.get(runtime)
        reason = None if kind is None else self._wait_for(subject.folder / kind, written)
        if reason is not None:
            return Result(seconds=0.0, reason=reason)
        with self._places:
            begin = time.monotonic()
            if begin > self._end:
                return Result(seconds=0.0, reason=TOO_LATE)
            if runtime == TENSORRT:
                reason = self._compile(subject, precision)
            else:
                reason = self._run_module("benchmarks.gpu.engines", subject, runtime)
        seconds = round(time.monotonic() - begin, 1)
        print(f"  {subject.name} {runtime} {precision}: {reason or f'{seconds} s'}", flush=True)
        return Result(seconds=seconds, reason=reason or None)

    def _wait_for(self, stem: Path, written: Future[str]) -> str | None:
        """Return why a network will not be there; None once it is."""
        while True:
            has_ended = written.done()
            if stem.with_suffix(".onnx").is_file():
                return None
            if stem.with_suffix(".txt").is_file():
                return f"no network: {stem.with_suffix('.txt').read_text(encoding='utf-8')}"
            if has_ended:
                return f"no network: {written.result() or 'its process wrote none'}"
            time.sleep(POLL_SECONDS)

    def _compile(self, subject: Subject, precision: str) -> str:
        runner, plan = self._runner(), subject.plan(precision)
        if runner.find(PROGRAM) is None:
            return f"{PROGRAM} is not on the path"
        try:
            dialect = 11 if int(trtexec_version(runner).split(".")[0]) >= 11 else 10
            argv = plan_command(subject, precision, dialect)  # type: ignore[arg-type]
        except BuildError as fault:
            return one_line(fault, 300)
        ended = runner.run(Command(argv=argv, timeout_seconds=self._seconds()))
        if ended.code != 0:
            plan.unlink(missing_ok=True)
            return f"{PROGRAM} {ended.how}: {last_error(ended)}"[:300]
        return ""

    def _run_module(self, module: str, subject: Subject, *more: str) -> str:
        tiny = ["--tiny"] if subject.tiny else []
        argv = (sys.executable, "-m", module, subject.name, str(subject.folder), *more, *tiny)
        ended = self._runner().run(Command(argv=argv, timeout_seconds=self._seconds()))
        return "" if ended.code == 0 else f"its process {ended.how}: {ended.last_error}"[:300]

    def _seconds(self) -> float:
        return max(1.0, self._end - time.monotonic())


def pieces() -> Iterator[tuple[str, str]]:
    """Yield runtime and precision of each piece of work; the servers need the first."""
    yield TENSORRT, "fp16"
    yield COMPILED, "fp16"
    for precision in PRECISIONS:
        if precision != "fp16":
            yield TENSORRT, precision
    for runtime in COMPILES[1:]:
        yield runtime, "fp16"
