"""Monitoring of an execution: where each engine is, and its record once it is published."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from onboarding.lock import LockEntry, write_lock_entry
from onboarding.names import artifact_bucket, engine_record_path
from roundhouse.aws.clients import object_bytes
from roundhouse.deploy.builds.codebuild import location
from roundhouse.deploy.builds.engine_requests import EngineRequest, Failure
from roundhouse.deploy.builds.execution import RUNNING, EngineState, Execution
from roundhouse.deploy.builds.job import failure_reason, progress
from roundhouse.errors import AwsError, BuildFailedError, NotReadyError
from roundhouse.report import REPEAT_SECONDS, UPDATE_SECONDS, Report, shorten
from roundhouse.session import Session


@dataclass(kw_only=True)
class Line:
    """One build that has begun."""

    title: str
    task: TaskID | None
    begin: float = field(default_factory=time.monotonic)
    shown_at: float = 0.0
    last: str = ""

    @property
    def seconds(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self.begin


@dataclass(kw_only=True)
class Lines:
    """The builds under way: in place on a terminal.

    Elsewhere a line when one says something new, seldom.
    """

    report: Report
    progress: Progress | None
    _lines: dict[str, Line] = field(default_factory=dict)

    def update(self, key: str, title: str, text: str) -> None:
        """Show where a build is; the first time, that it has begun."""
        line = self._lines.get(key)
        if line is None:
            line = self._begin(key, title)
        short = shorten(text)
        if self.progress is not None and line.task is not None:
            self.progress.update(line.task, description=f"{title}  [dim]{escape(short)}[/dim]")
        elif short and line.seconds - line.shown_at >= (
            REPEAT_SECONDS if short == line.last else UPDATE_SECONDS
        ):
            line.shown_at, line.last = line.seconds, short
            self._print(f"    … {line.seconds:5.1f} s  {escape(title)}: {escape(short)}")

    def finish(self, key: str, title: str, detail: str) -> None:
        """Leave what a build came to, and remembers how long it took."""
        line = self._remove(key, title)
        self.report.times.append((title, line.seconds))
        self._print(
            f"[green]✓[/green] {escape(title)}: {escape(detail)}  [dim]{line.seconds:.1f} s[/dim]"
        )

    def failed(self, key: str, title: str, reason: str) -> None:
        """Leave why a build failed."""
        line = self._remove(key, title)
        self._print(
            f"[red]✗[/red] {escape(title)}: {escape(reason)}  [dim]{line.seconds:.1f} s[/dim]"
        )

    def _begin(self, key: str, title: str) -> Line:
        if self.progress is None:
            self._print(f"  {escape(title)} …")
        task = None if self.progress is None else self.progress.add_task(title, total=None)
        self._lines[key] = Line(title=title, task=task)
        return self._lines[key]

    def _remove(self, key: str, title: str) -> Line:
        line = self._lines.pop(key, None)
        if line is None:
            return Line(title=title, task=None)
        if self.progress is not None and line.task is not None:
            self.progress.remove_task(line.task)
        return line

    def _print(self, text: str) -> None:
        self.report.console.print(text, soft_wrap=True)


@contextmanager
def build_lines(report: Report) -> Iterator[Lines]:
    """Lines for as long as builds are followed."""
    if not report.console.is_terminal:
        yield Lines(report=report, progress=None)
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=report.console, transient=True) as progress:
        yield Lines(report=report, progress=progress)


EVERY_SECONDS, LOCAL_EVERY_SECONDS = 5.0, 0.5
PATIENCE_SECONDS = 300.0
"""Without an answer of AWS."""


@dataclass(kw_only=True)
class BuildMonitor:
    """The engines of one execution, and what has come of them so far.

    `sleep` waits between two looks.
    """

    session: Session
    requests: Mapping[str, EngineRequest]
    sleep: Callable[[float], None] = time.sleep
    built: list[LockEntry] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    _left: set[str] = field(default_factory=set)

    def follow(self, execution: Execution) -> None:
        """Follow until every engine has ended.

        On Ctrl-C, stops the execution and what it has started.

        AWS may not answer for a while, once it has answered at all: hours of builds are not
        lost to a network that was away. Raises NotReadyError when it stays away; the builds
        go on.
        """
        self._left = set(self.requests)
        every = self._every
        missed = PATIENCE_SECONDS
        try:
            with build_lines(self.session.report) as lines:
                while True:
                    self.session.report.check()
                    try:
                        has_ended, missed = self._look(execution, lines), 0.0
                    except AwsError as fault:
                        has_ended, missed = False, self._missed(fault, missed + every, execution)
                    if has_ended:
                        break
                    self.sleep(every)
                self._give_up(execution, lines)
        except KeyboardInterrupt:
            self.session.report.print("Stopping the builds …")
            execution.stop(lambda: self.sleep(every))
            raise

    @property
    def _every(self) -> float:
        return LOCAL_EVERY_SECONDS if self.session.is_local else EVERY_SECONDS

    def _look(self, execution: Execution, lines: Lines) -> bool:
        """Return whether the execution has ended, and all that it came to is taken."""
        execution.look()
        self._take(execution, lines)
        return execution.status != RUNNING

    def _missed(self, fault: AwsError, seconds: float, execution: Execution) -> float:
        """The seconds without an answer, once it is shown_at why.

        Raises NotReadyError when they are too many.
        """
        if seconds > PATIENCE_SECONDS:
            again = "run the same command again to record what they publish"
            raise NotReadyError(
                f"{fault} The builds go on, and nobody follows them: {execution.arn}; {again}."
            ) from fault
        if seconds <= self._every:
            self.session.report.print(f"{fault} The builds go on; asking again …")
        return seconds

    def _take(self, execution: Execution, lines: Lines) -> None:
        for key in [key for key in self.requests if key in self._left and key in execution.engines]:
            state = execution.engines[key]
            if state.is_running:
                lines.update(key, self._title(key), progress(self.session.clients, state.job))
            else:
                self._end(key, state, lines)

    def _end(self, key: str, state: EngineState, lines: Lines) -> None:
        """Take an engine's record, or the want of one, for its end."""
        record = state.record
        if record is None:
            return
        if record["status"] != "built":
            self._fail(
                key,
                failure_reason(self.session.clients, state.job, record["reason"]),
                location(record["log"]),
                lines,
            )
            return
        try:
            entry = record_engine(self.session, self.requests[key])
        except BuildFailedError as error:
            self._fail(key, str(error), "none", lines)
            return
        self._left.discard(key)
        self.built.append(entry)
        lines.finish(key, self._title(key), summary(entry))

    def _fail(self, key: str, reason: str, log: str, lines: Lines) -> None:
        self._left.discard(key)
        self.failures.append(
            Failure(
                model=self.requests[key].target.model.name, engine_key=key, reason=reason, log=log
            )
        )
        lines.failed(key, self._title(key), reason)

    def _give_up(self, execution: Execution, lines: Lines) -> None:
        """Engines that the execution ended without: it was stopped, or broke."""
        for key in sorted(self._left):
            if key in execution.engines:
                reason = "its execution ended without a word"
            elif execution.status == "ABORTED":
                reason = "the builds were stopped before it began"
            else:
                reason = (
                    execution.cause or f"the execution ended as {execution.status} before it began"
                )
            self._fail(key, reason, execution.arn, lines)

    def _title(self, key: str) -> str:
        request = self.requests[key]
        name = request.target.model.name
        several = sum(other.target.model.name == name for other in self.requests.values()) > 1
        target = f" for {request.target.instance_type.compute_capability}" if several else ""
        return f"Building {name}{target} ({request.why})"


def record_engine(session: Session, request: EngineRequest) -> LockEntry:
    """Read what a build published about its engine and writes it into the model's lock.

    Raises BuildFailedError.
    """
    bucket, key = artifact_bucket(session.environment), engine_record_path(request.engine_key)
    data = object_bytes(session.clients("s3"), bucket, key)
    if data is None:
        raise BuildFailedError(
            f"the build ended well, but s3://{bucket}/{key} is not there: it built another key; "
            "are all files of the tree saved and readable by the build?"
        )
    entry = LockEntry.model_validate_json(data)
    write_lock_entry(
        session.paths.tree / session.environment.locks, request.target.model.name, entry
    )
    return entry


def summary(entry: LockEntry) -> str:
    """An engine in a few words."""
    size = entry.archive.size_bytes / 1e6
    return f"{entry.manifest.precision} engine {entry.manifest.engine_key}, {size:.0f} MB"
