"""Runs the load test of `roundhouse bench`, shows its progress and writes its report."""

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

from rich.markup import escape
from rich.table import Table

from engine_build.card.render import milliseconds, per_second
from roundhouse.errors import WrongAnswerError
from roundhouse.load_test.document import load_document
from roundhouse.load_test.load_test import LoadTest, Runner
from roundhouse.load_test.measurement import Measurement, Outcome
from roundhouse.load_test.options import LoadOptions, Loop
from roundhouse.load_test.result import LoadResult, circumstances, percentiles_text
from roundhouse.load_test.subject import load_test, require_answer
from roundhouse.paths import Paths, output_folder
from roundhouse.report import Report, Step

COLORS = {Outcome.held: "green", Outcome.missed: "red"}
PERCENTILES = (50, 95, 99)


@dataclass(frozen=True, kw_only=True)
class LoadReport:
    """A load test's result and the page that it was written to."""

    result: LoadResult
    page: Path

    @property
    def data(self) -> Path:
        """The JSON file beside the page."""
        return self.page.with_suffix(".json")


def run_bench(
    paths: Paths, report: Report, options: LoadOptions, *, render: Callable[[LoadResult], bytes]
) -> LoadReport:
    """Run a load test and write its report; Ctrl-C ends the load and keeps what was measured.

    Raises WrongAnswerError, after the report is written, when no request was answered;
    RoundhouseError and NotReadyError before the load.
    """
    folder = prepare_folder(paths, options.output)
    test = load_test(paths, report, options)
    asyncio.run(require_answer(test))
    result = _run(test, report)
    written = _write(folder, result, render(result))
    if not result.broken_off and not any(phase.answered for phase in result.phases):
        reasons = [reason for phase in result.phases for reason, _ in phase.errors.most_common()]
        reason = reasons[0] if reasons else "none was sent"
        raise WrongAnswerError(
            f"{test.subject}: no request was answered ({reason}); the report is {written.page}."
        )
    return written


def prepare_folder(paths: Paths, output: Path | None) -> Path:
    """Return the folder for a report, once it can be written. Raises RoundhouseError."""
    folder = paths.build / "load" if output is None else output
    with output_folder(folder):
        tempfile.TemporaryFile(dir=folder).close()
    return folder


def report_page(folder: Path, subject: str, date: str) -> Path:
    """Return a path of a page that is not there yet."""
    stem = re.sub(r"[^A-Za-z0-9]+", "-", f"{subject} {date}").strip("-")
    pages = (folder / f"{stem}{f'-{number}' if number else ''}.html" for number in range(10_000))
    return next(path for path in pages if not path.exists())


def _run(test: LoadTest, report: Report) -> LoadResult:
    with report.step(f"Load on {test.subject}") as step:
        runner = Runner(
            test=test,
            on_second=lambda measurement: _update(step, measurement),
            on_phase=lambda phase: report.console.print(f"  {_phase_line(phase)}", soft_wrap=True),
        )
        is_broken_off = run_interruptible(runner.run, runner.interrupted)
        answers = sum(phase.answered for phase in runner.phases)
        step.finish("broken off" if is_broken_off else f"{answers:,} answers")
    return LoadResult(
        test=test,
        phases=runner.phases,
        circumstances=circumstances(),
        steps=runner.steps,
        probe_per_second=runner.probe_per_second,
        stopped=runner.stopped,
        broken_off=is_broken_off,
    )


def run_interruptible(
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


def _update(step: Step, measurement: Measurement) -> None:
    second, phase = measurement.seconds_seen[-1], measurement.phase
    users = f" · {second.users} users"
    load = users if phase.loop is Loop.closed else f" of {per_second(second.offered)}"
    step.update(
        f"{phase.name} · {second.second + 1} s · {per_second(second.answered)}/s{load} · "
        f"p50 {milliseconds(measurement.newest(50))}{_errors(measurement, ' · ')}"
    )


def _phase_line(measurement: Measurement) -> str:
    offered = f" of {per_second(measurement.offered_per_second)}"
    line = escape(
        f"{measurement.phase.name}: {per_second(measurement.answered_per_second)}"
        f"{offered if measurement.phase.loop is Loop.open else ''} answers/s, "
        f"{percentiles_text(measurement.latency)}{_errors(measurement, ', ')}"
    )
    verdict = measurement.verdict
    if verdict is None:
        return line
    reason = "" if verdict.outcome is Outcome.held else f" ({escape(verdict.reason)})"
    return f"{line}  [{COLORS.get(verdict.outcome, 'yellow')}]{verdict.outcome}[/]{reason}"


def _errors(measurement: Measurement, separator: str) -> str:
    return f"{separator}{measurement.failed:,} errors" if measurement.failed else ""


def _write(folder: Path, result: LoadResult, html: bytes) -> LoadReport:
    page = report_page(folder, result.test.subject, result.circumstances.date)
    report = LoadReport(result=result, page=page)
    document = json.dumps(load_document(result), indent=2, allow_nan=False)
    with output_folder(folder):
        report.page.write_bytes(html)
        report.data.write_text(document + "\n", encoding="utf-8")
    return report


def load_table(result: LoadResult) -> Table:
    """Return a table with a row for each phase; the chief one stands out."""
    table = Table()
    for column in ("Phase", "Offered/s", "Answered/s", "p50", "p95", "p99", "Errors", "SLO"):
        table.add_column(column, justify="left" if column in ("Phase", "SLO") else "right")
    chief = result.chief
    for measurement in result.phases:
        phase, verdict = measurement.phase, measurement.verdict
        table.add_row(
            escape(phase.name),
            per_second(measurement.offered_per_second) if phase.loop is Loop.open else "–",
            per_second(measurement.answered_per_second),
            *(milliseconds(measurement.latency.percentile(p)) for p in PERCENTILES),
            f"{measurement.failed:,}",
            "–" if verdict is None else verdict.outcome,
            style="bold" if measurement is chief else None,
        )
    return table
