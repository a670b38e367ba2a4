"""Follows an execution of the build machine: shows where each engine is, and records it as soon as
it is published.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from onboarding.lock import LockEntry, write_lock_entry
from onboarding.names import artifact_bucket, engine_record_path
from roundhouse.aws.clients import object_bytes
from roundhouse.deploy.builds.codebuild import place
from roundhouse.deploy.builds.execution import RUNNING, EngineState, Execution
from roundhouse.deploy.builds.job import progress
from roundhouse.deploy.builds.job import reason as why
from roundhouse.deploy.builds.lines import Lines, build_lines
from roundhouse.deploy.builds.outcome import Failure
from roundhouse.deploy.builds.wish import Wanted
from roundhouse.errors import AwsError, BuildFailedError, NotReadyError
from roundhouse.session import Session

EVERY_SECONDS, LOCAL_EVERY_SECONDS = 5.0, 0.5
PATIENCE_SECONDS = 300.0
"""Without an answer of AWS."""


@dataclass(kw_only=True)
class Following:
    """The engines of one execution, and what has come of them so far; `sleep` waits between two
    looks.
    """

    session: Session
    orders: Mapping[str, Wanted]
    sleep: Callable[[float], None] = time.sleep
    built: list[LockEntry] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    _left: set[str] = field(default_factory=set)

    def to_the_end(self, execution: Execution) -> None:
        """Follows until every engine has ended; on Ctrl-C, stops the execution and what it has
        started.

        AWS may not answer for a while, once it has answered at all: hours of builds are not lost to
        a network that was away.
        Raises NotReadyError when it stays away; the builds go on.
        """
        self._left = set(self.orders)
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
        """Whether the execution has ended, and all that it came to is taken."""
        execution.look()
        self._take(execution, lines)
        return execution.status != RUNNING

    def _missed(self, fault: AwsError, seconds: float, execution: Execution) -> float:
        """The seconds without an answer, once it is said why.

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
        for key in [key for key in self.orders if key in self._left and key in execution.engines]:
            state = execution.engines[key]
            if state.is_running:
                lines.update(key, self._title(key), progress(self.session.clients, state.job))
            else:
                self._end(key, state, lines)

    def _end(self, key: str, state: EngineState, lines: Lines) -> None:
        """Takes an engine's record, or the want of one, for its end."""
        record = state.record
        if record is None:
            return
        if record["status"] != "built":
            self._fail(
                key,
                why(self.session.clients, state.job, record["reason"]),
                place(record["log"]),
                lines,
            )
            return
        try:
            entry = recorded(self.session, self.orders[key])
        except BuildFailedError as error:
            self._fail(key, str(error), "none", lines)
            return
        self._left.discard(key)
        self.built.append(entry)
        lines.done(key, self._title(key), summary(entry))

    def _fail(self, key: str, reason: str, log: str, lines: Lines) -> None:
        self._left.discard(key)
        self.failures.append(
            Failure(
                model=self.orders[key].target.model.name, engine_key=key, reason=reason, log=log
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
        order = self.orders[key]
        name = order.target.model.name
        several = sum(each.target.model.name == name for each in self.orders.values()) > 1
        target = f" for {order.target.instance_type.compute_capability}" if several else ""
        return f"Building {name}{target} ({order.why})"


def recorded(session: Session, order: Wanted) -> LockEntry:
    """Reads what a build published about its engine and writes it into the model's lock.

    Raises BuildFailedError.
    """
    bucket, key = artifact_bucket(session.environment), engine_record_path(order.engine_key)
    data = object_bytes(session.clients("s3"), bucket, key)
    if data is None:
        raise BuildFailedError(
            f"the build ended well, but s3://{bucket}/{key} is not there: it built another key; "
            "are all files of the tree saved and readable by the build?"
        )
    entry = LockEntry.model_validate_json(data)
    write_lock_entry(session.paths.tree / session.environment.locks, order.target.model.name, entry)
    return entry


def summary(entry: LockEntry) -> str:
    """An engine in a few words."""
    size = entry.archive.size_bytes / 1e6
    return f"{entry.manifest.precision} engine {entry.manifest.engine_key}, {size:.0f} MB"
