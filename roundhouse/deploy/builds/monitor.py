"""Monitoring of an execution: where each engine is, and its record once it is published."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from rich.progress import Progress

from onboarding.lock import LockEntry, write_lock_entry
from onboarding.names import engine_record_path
from roundhouse.deploy.builds.checkpoint_requests import CheckpointRequest, format_entry
from roundhouse.deploy.builds.codebuild import location
from roundhouse.deploy.builds.engine_requests import BuiltEntry, EngineRequest, Failure
from roundhouse.deploy.builds.execution import RUNNING, EngineState, Execution
from roundhouse.deploy.builds.job import failure_reason, progress
from roundhouse.deploy.builds.records import another_record, published_record
from roundhouse.errors import AwsError, BuildFailedError, NotReadyError
from roundhouse.report import Step
from roundhouse.session import Session

EVERY_SECONDS, LOCAL_EVERY_SECONDS = 5.0, 0.5
PATIENCE_SECONDS = 300.0
"""Without an answer of AWS, or throttled by it."""


@dataclass(kw_only=True)
class BuildMonitor:
    """The engines of one execution by key, and their results; `sleep` waits between two looks."""

    session: Session
    requests: Mapping[str, EngineRequest | CheckpointRequest]
    sleep: Callable[[float], None] = time.sleep
    built: list[BuiltEntry] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    _left: set[str] = field(default_factory=set)
    _steps: dict[str, Step] = field(default_factory=dict)
    _progress: Progress | None = None

    def follow(self, execution: Execution) -> None:
        """Follow until every engine has ended; on Ctrl-C stop the execution and its jobs.

        Once AWS has answered, it may stay silent for PATIENCE_SECONDS. Raises NotReadyError after
        that, and at once for what AWS refuses for good, as a permission is; the builds go on.
        """
        self._left, report = set(self.requests), self.session.report
        every = LOCAL_EVERY_SECONDS if self.session.is_local else EVERY_SECONDS
        silent_seconds, has_ended = PATIENCE_SECONDS, False
        try:
            with report.progress() as self._progress:
                while not has_ended:
                    report.check()
                    try:
                        execution.look()
                        self._update(execution)
                        has_ended, silent_seconds = execution.status != RUNNING, 0.0
                    except AwsError as error:
                        silent_seconds += every
                        if not error.is_temporary or silent_seconds > PATIENCE_SECONDS:
                            raise NotReadyError(
                                f"{error} The builds go on, and nobody follows them: "
                                f"{execution.arn}; run the same command again to record what they "
                                "publish."
                            ) from error
                        if silent_seconds <= every:
                            report.print(f"{error} The builds go on; asking again …")
                    if not has_ended:
                        self.sleep(every)
                self._fail_unfinished(execution)
        except KeyboardInterrupt:
            report.print("Stopping the builds …")
            execution.stop(lambda: self.sleep(every))
            raise

    def _update(self, execution: Execution) -> None:
        for key in [key for key in self.requests if key in self._left and key in execution.engines]:
            state = execution.engines[key]
            if state.is_running:
                self._step(key).update(progress(self.session.clients, state.job))
            elif state.record is not None:
                self._finish(key, state, state.record)

    def _finish(self, key: str, state: EngineState, record: Mapping[str, str]) -> None:
        if record["status"] != "built":
            reason = failure_reason(self.session.clients, state.job, record["reason"])
            self._fail(key, reason, location(record["log"]))
            return
        request = self.requests[key]
        entry: BuiltEntry
        try:
            if isinstance(request, CheckpointRequest):
                checkpoint = request.record(self.session)
                entry, text = checkpoint, format_entry(checkpoint)
            else:
                engine = record_engine(self.session, request)
                entry, text = engine, _format_engine(engine, record.get("notReused", ""))
        except BuildFailedError as error:
            self._fail(key, str(error), "none")
            return
        self._left.discard(key)
        self.built.append(entry)
        step = self._step(key)
        step.end(text)
        self.session.report.times.append((step.title, step.seconds))

    def _fail(self, key: str, reason: str, log: str) -> None:
        self._left.discard(key)
        model = self.requests[key].model
        self.failures.append(Failure(model=model, engine_key=key, reason=reason, log=log))
        self._step(key).end(reason, has_failed=True)

    def _fail_unfinished(self, execution: Execution) -> None:
        ended = execution.cause or f"the execution ended as {execution.status} before it began"
        if execution.status == "ABORTED":
            ended = "the builds were stopped before it began"
        for key in sorted(self._left):
            has_begun = key in execution.engines
            reason = "its execution ended without a word" if has_begun else ended
            self._fail(key, reason, execution.arn)

    def _step(self, key: str) -> Step:
        if key not in self._steps:
            request = self.requests[key]
            several = sum(other.model == request.model for other in self.requests.values()) > 1
            title = request.title(of_several=several)
            self._steps[key] = Step(
                title=title,
                console=self.session.report.console,
                progress=self._progress,
                log_prefix=f"{title}: ",
            )
        return self._steps[key]


def _format_engine(entry: LockEntry, reason: str) -> str:
    size = f"{entry.archive.size_bytes / 1e6:.0f} MB"
    not_reused = " ".join(reason.split()).rstrip(".")
    compiled = f"; its plan was compiled: {not_reused}" if not_reused else ""
    return f"{entry.manifest.precision} engine {entry.manifest.engine_key}, {size}{compiled}"


def record_engine(session: Session, request: EngineRequest) -> LockEntry:
    """Write the record that a build published of its engine into the model's lock.

    With the plan's key, by which plans are looked for in locks. Raises BuildFailedError.
    """
    model, path = request.target.model.name, engine_record_path(request.engine_key)
    entry = published_record(session, path, LockEntry)
    found, wanted = (entry.manifest.engine_key, entry.manifest.model), (request.engine_key, model)
    if found != wanted:
        raise another_record(session, path, found, wanted)
    entry = entry.model_copy(update={"plan_key": request.target.plan_key})
    write_lock_entry(session.paths.tree / session.environment.locks, model, entry)
    return entry
