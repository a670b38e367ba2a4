"""Runs the load test of `roundhouse bench`, shows its progress and writes its report."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from rich.markup import escape
from rich.table import Table

from engine_build.card.render import milliseconds, per_second
from roundhouse.errors import RoundhouseError, WrongAnswerError
from roundhouse.load_test.load_test import LoadTest, Measured, Runner
from roundhouse.load_test.measurement import Measurement
from roundhouse.load_test.options import LoadOptions, Loop
from roundhouse.load_test.result import LoadResult, circumstances
from roundhouse.load_test.saturation import Outcome, Verdict
from roundhouse.load_test.subject import load_test, require_answer
from roundhouse.load_test.summary import load_result
from roundhouse.paths import Paths
from roundhouse.report import Report, Step

COLORS = {Outcome.held: "green", Outcome.missed: "red"}
PERCENTILES = (50, 95, 99)


@dataclass(frozen=True, kw_only=True)
class LoadReport:
    """A load test's result and the files that it was written to."""

    result: LoadResult
    page: Path
    data: Path


def run_bench(
    paths: Paths, report: Report, options: LoadOptions, *, render: Callable[[LoadResult], bytes]
) -> LoadReport:
    """Run a load test and write its report; Ctrl-C ends the load and keeps what was measured.

    Raises WrongAnswerError, after the report is written, when no request was answered;
    RoundhouseError and NotReadyError before the load.
    """
    folder = _writable_folder(paths.build / "load" if options.output is None else options.output)
    test = load_test(paths, report, options)
    asyncio.run(require_answer(test))
    result = load_result(test, _run(test, report), circumstances())
    written = _write(folder, result, render(result))
    if not result.broken_off and not any(phase.answered for phase in result.phases):
        errors = [reason for phase in result.phases for reason in phase.errors]
        reason = errors[0] if errors else "none was sent"
        raise WrongAnswerError(
            f"{result.subject}: no request was answered ({reason}); the report is {written.page}."
        )
    return written


def _run(test: LoadTest, report: Report) -> Measured:
    import uvloop

    with report.step(f"Load on {test.subject}") as step:

        def show_phase(measurement: Measurement, verdict: Verdict | None) -> None:
            line = f"  {_phase_line(measurement)}{_verdict_text(verdict)}"
            report.console.print(line, soft_wrap=True)

        async def run() -> Measured:
            runner = Runner(
                test=test, on_second=lambda second: _update(step, second), on_phase=show_phase
            )
            with _interrupts(runner.interrupted):
                return await runner.run()

        measured: Measured = uvloop.run(run())
        answers = sum(phase.answered for phase in measured.phases)
        step.finish("broken off" if measured.interrupted else f"{answers:,} answers")
    return measured


@contextmanager
def _interrupts(interrupted: asyncio.Event) -> Iterator[None]:
    """Let the first Ctrl-C end the load, and the second one the command."""
    loop = asyncio.get_running_loop()
    before: dict[int, Any] = {
        number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)
    }

    def interrupt(number: int, frame: FrameType | None) -> None:
        if interrupted.is_set():
            raise KeyboardInterrupt
        loop.call_soon_threadsafe(interrupted.set)
        signal.signal(number, before[number])

    for number in before:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _update(step: Step, measurement: Measurement) -> None:
    second, phase = measurement.seconds_seen[-1], measurement.phase
    users = f" · {second.users} users"
    load = users if phase.loop is Loop.closed else f" of {per_second(second.intended)}"
    step.update(
        f"{phase.name} · {second.second + 1} s · {per_second(second.answered)}/s{load} · "
        f"p50 {milliseconds(measurement.newest(50))}{_error_text(measurement, ' · ')}"
    )


def _phase_line(measurement: Measurement) -> str:
    offered = f" of {per_second(measurement.offered_per_second)}"
    latencies = ", ".join(
        f"p{percentile} {milliseconds(measurement.latency.percentile(percentile))}"
        for percentile in PERCENTILES
    )
    return escape(
        f"{measurement.phase.name}: {per_second(measurement.answered_per_second)}"
        f"{offered if measurement.phase.loop is Loop.open else ''} answers/s, {latencies}"
        f"{_error_text(measurement, ', ')}"
    )


def _error_text(measurement: Measurement, separator: str) -> str:
    return f"{separator}{measurement.failed:,} errors" if measurement.failed else ""


def _verdict_text(verdict: Verdict | None) -> str:
    if verdict is None:
        return ""
    reason = "" if verdict.outcome is Outcome.held else f" ({escape(verdict.reason)})"
    return f"  [{COLORS.get(verdict.outcome, 'yellow')}]{verdict.outcome}[/]{reason}"


def _writable_folder(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise _unwritable(folder, error) from error
    return folder


def _unwritable(folder: Path, error: OSError) -> RoundhouseError:
    return RoundhouseError(
        f"--output {folder}: {error.strerror}; give a folder that can be written."
    )


def _write(folder: Path, result: LoadResult, html: bytes) -> LoadReport:
    stem = re.sub(r"[^A-Za-z0-9]+", "-", f"{result.subject} {result.circumstances.date}").strip("-")
    names = (folder / f"{stem}{f'-{number}' if number else ''}.html" for number in range(10_000))
    page = next(path for path in names if not path.exists())
    data = page.with_suffix(".json")
    document = json.dumps(result.as_dict(), indent=2, allow_nan=False)
    try:
        page.write_bytes(html)
        data.write_text(document + "\n", encoding="utf-8")
    except OSError as error:
        raise _unwritable(folder, error) from error
    return LoadReport(result=result, page=page, data=data)


def load_table(result: LoadResult) -> Table:
    """Return a table with a row for each phase; the chief one stands out."""
    table = Table()
    for column in ("Phase", "Offered/s", "Answered/s", "p50", "p95", "p99", "Errors", "SLO"):
        table.add_column(column, justify="left" if column in ("Phase", "SLO") else "right")
    for phase in result.phases:
        table.add_row(
            escape(phase.name),
            per_second(phase.offered_per_second) if phase.loop == Loop.open else "–",
            per_second(phase.answered_per_second),
            *(milliseconds(phase.latency_ms[f"p{percentile}"]) for percentile in PERCENTILES),
            f"{phase.failed:,}",
            "–" if phase.outcome is None else phase.outcome,
            style="bold" if phase is result.chief else None,
        )
    return table
