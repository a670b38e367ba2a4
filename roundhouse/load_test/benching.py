"""`roundhouse bench`: runs a load test under the reader's eyes and leaves its report as HTML and
JSON.
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from rich.markup import escape

from roundhouse.errors import RoundhouseError, WrongAnswerError
from roundhouse.load_test.asked import Asked
from roundhouse.load_test.conducting import Conductor, Done
from roundhouse.load_test.judgement.measured import Measured
from roundhouse.load_test.judgement.verdict import Outcome, Verdict
from roundhouse.load_test.preflight import require_answer
from roundhouse.load_test.report.circumstances import circumstances
from roundhouse.load_test.report.page import load_page
from roundhouse.load_test.report.result import LoadResult
from roundhouse.load_test.report.summary import load_result
from roundhouse.load_test.subject import asked
from roundhouse.load_test.traffic import Loop
from roundhouse.load_test.wishes import Wishes
from roundhouse.load_test.wording import milliseconds, rate
from roundhouse.paths import Paths
from roundhouse.report import Report, Step

COLOURS = {Outcome.held: "green", Outcome.missed: "red"}


@dataclass(frozen=True, kw_only=True)
class Benched:
    """A load test's result and the files that it was written to."""

    result: LoadResult
    page: Path
    data: Path


def bench(at: Paths, report: Report, wishes: Wishes) -> Benched:
    """Measures and writes. Ctrl-C ends the load and keeps what was measured; a second one ends the
    command.

    Raises WrongAnswerError, after the report is written, when no request was answered; RoundhouseError
    and NotReadyError before the load.
    """
    folder = _folder(at.build / "load" if wishes.output is None else wishes.output)
    order = asked(at, report, wishes)
    require_answer(order)
    done = _conducted(order, report)
    result = load_result(order, done, circumstances())
    benched = _written(folder, result)
    if not done.broken_off:
        _require_answers(result, benched)
    return benched


def _conducted(order: Asked, report: Report) -> Done:
    with report.step(f"Load on {order.subject}") as step:

        def ended(measured: Measured, said: Verdict | None) -> None:
            report.console.print(f"  {_line(measured)}{_verdict(said)}", soft_wrap=True)

        async def conduct() -> Done:
            conductor = Conductor(
                asked=order, progress=lambda measured: _tell(step, measured), ended=ended
            )
            with _interrupts(conductor.interrupted):
                return await conductor.conduct()

        done = asyncio.run(conduct())
        step.done(
            "broken off"
            if done.broken_off
            else f"{sum(each.answered for each in done.phases):,} answers"
        )
    return done


@contextmanager
def _interrupts(interrupted: asyncio.Event) -> Iterator[None]:
    """The first Ctrl-C ends the load, the second one the command."""
    loop = asyncio.get_running_loop()
    before: dict[int, Any] = {
        number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)
    }

    def hear(number: int, frame: FrameType | None) -> None:
        if interrupted.is_set():
            raise KeyboardInterrupt
        loop.call_soon_threadsafe(interrupted.set)
        signal.signal(number, before[number])

    for number in before:
        signal.signal(number, hear)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _tell(step: Step, measured: Measured) -> None:
    moment = measured.ordered[-1]
    users = (
        f" · {moment.users} users"
        if measured.phase.loop is Loop.closed
        else f" of {rate(moment.intended)}"
    )
    faults = f" · {measured.failed:,} errors" if measured.failed else ""
    p50 = measured.newest(50)
    step.update(
        f"{measured.phase.name} · {moment.second + 1} s · {rate(moment.answered)}/s{users} · p50 {milliseconds(p50)}{faults}"
    )


def _line(measured: Measured) -> str:
    offered = f" of {rate(measured.offered_per_second)}" if measured.phase.loop is Loop.open else ""
    times = ", ".join(
        f"p{each:g} {milliseconds(measured.latency.milliseconds(each))}" for each in (50, 95, 99)
    )
    faults = f", {measured.failed:,} errors" if measured.failed else ""
    return escape(
        f"{measured.phase.name}: {rate(measured.answered_per_second)}{offered} answers/s, {times}{faults}"
    )


def _verdict(said: Verdict | None) -> str:
    if said is None:
        return ""
    reason = "" if said.outcome is Outcome.held else f" ({escape(said.reason)})"
    return f"  [{COLOURS.get(said.outcome, 'yellow')}]{said.outcome}[/]{reason}"


def _folder(folder: Path) -> Path:
    """The folder of the reports, made before the load runs. Raises RoundhouseError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise RoundhouseError(
            f"--output {folder}: {error.strerror}; give a folder that can be written."
        ) from error
    return folder


def _written(folder: Path, result: LoadResult) -> Benched:
    stem = re.sub(r"[^A-Za-z0-9]+", "-", f"{result.subject} {result.circumstances.date}").strip("-")
    page = _free(folder, stem)
    data = page.with_suffix(".json")
    try:
        page.write_bytes(load_page(result))
        data.write_text(
            json.dumps(result.as_dict(), indent=2, allow_nan=False) + "\n", encoding="utf-8"
        )
    except OSError as error:
        raise RoundhouseError(
            f"--output {folder}: {error.strerror}; give a folder that can be written."
        ) from error
    return Benched(result=result, page=page, data=data)


def _free(folder: Path, stem: str) -> Path:
    """A name that no earlier report has."""
    names = (folder / f"{stem}{f'-{number}' if number else ''}.html" for number in range(10_000))
    return next(path for path in names if not path.exists())


def _require_answers(result: LoadResult, benched: Benched) -> None:
    if any(each.answered for each in result.phases):
        return
    faults = [reason for each in result.phases for reason in each.faults]
    reason = faults[0] if faults else "none was sent"
    raise WrongAnswerError(
        f"{result.subject}: no request was answered ({reason}); the report is {benched.page}."
    )
