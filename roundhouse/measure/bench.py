"""Runs the load test of `roundhouse bench`, shows its progress and writes its numbers."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from roundhouse.errors import WrongAnswerError
from roundhouse.measure.options import LoadOptions
from roundhouse.measure.result import Result, circumstances
from roundhouse.measure.runner import Runner, phase_line, phase_progress
from roundhouse.measure.subject import open_runner
from roundhouse.paths import Paths, output_folder
from roundhouse.report import Report


@dataclass(frozen=True, kw_only=True)
class LoadReport:
    """A load test's result and the JSON file that it was written to."""

    result: Result
    file: Path


def run_bench(paths: Paths, report: Report, options: LoadOptions) -> LoadReport:
    """Run a load test and write its report; Ctrl-C ends the load and keeps what was measured.

    Raises WrongAnswerError, after the report is written, when no request was answered;
    RoundhouseError and NotReadyError before the load.
    """
    folder = paths.build / "load"
    with output_folder(folder):
        tempfile.TemporaryFile(dir=folder).close()
    runner = open_runner(paths, report, options)
    subject = runner.test.subject
    is_broken_off = _run(runner, report)
    result = result_of(runner, broken_off=is_broken_off)
    written = LoadReport(result=result, file=_new_path(folder, subject, result.date))
    document = json.dumps(result.document(), indent=2, allow_nan=False)
    with output_folder(folder):
        written.file.write_text(document + "\n", encoding="utf-8")
    if not result.broken_off and result.fault is not None:
        raise WrongAnswerError(f"{subject}: {result.fault} The report is {written.file}.")
    return written


def _new_path(folder: Path, subject: str, date: str) -> Path:
    """Return a path of a report that is not there yet."""
    stem = re.sub(r"[^A-Za-z0-9]+", "-", f"{subject} {date}").strip("-")
    files = (folder / f"{stem}{f'-{number}' if number else ''}.json" for number in range(10_000))
    return next(path for path in files if not path.exists())


def _run(runner: Runner, report: Report) -> bool:
    """Run a load test and show its progress; return whether Ctrl-C ended it."""
    with report.step(f"Load on {runner.test.subject}") as step:
        runner.on_second = lambda phase: step.update(phase_progress(phase))
        runner.on_phase = lambda phase: report.console.print(
            f"  {phase_line(phase)}", soft_wrap=True
        )
        runner.on_note = lambda text: report.print(f"– {text}")
        is_broken_off = _run_interruptible(runner.run, runner.interrupted)
        answers = sum(phase.answered for phase in runner.phases)
        step.finish("broken off" if is_broken_off else f"{answers:,} answers")
    return is_broken_off


def _run_interruptible(
    run: Callable[[], Coroutine[Any, Any, None]], interrupted: asyncio.Event
) -> bool:
    """Run a load, which the first Ctrl-C ends; return whether it did."""
    import uvloop

    async def load() -> None:
        with _interruptible(interrupted):
            await run()

    uvloop.run(load())
    return interrupted.is_set()


@contextmanager
def _interruptible(interrupted: asyncio.Event) -> Iterator[None]:
    """Let the first Ctrl-C end the load, and the second one the command."""
    loop, signals = asyncio.get_running_loop(), (signal.SIGINT, signal.SIGTERM)
    before: list[Any] = [signal.getsignal(number) for number in signals]

    def restore() -> None:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)

    def interrupt(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(interrupted.set)
        restore()

    for number in signals:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        restore()


def result_of(runner: Runner, *, broken_off: bool) -> Result:
    """Return what a load test came to."""
    return Result(
        test=runner.test,
        phases=runner.phases,
        circumstances=circumstances(),
        workload=runner.workload,
        steps=runner.steps,
        ended=runner.ended,
        is_whole=runner.is_whole,
        broken_off=broken_off,
    )
