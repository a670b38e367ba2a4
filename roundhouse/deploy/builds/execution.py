"""One execution of an environment's build machine: started, looked at, stopped."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rich.progress import Progress

from onboarding import names
from onboarding.environment_spec import EnvironmentSpec
from onboarding.lock import BuiltEntry
from onboarding.platform import aws_partition
from onboarding.text_generation.checkpoint_key import QUANTIZER
from roundhouse.aws.clients import Client, Clients, calling, pages
from roundhouse.deploy.builds import codebuild
from roundhouse.deploy.builds.codebuild import location
from roundhouse.deploy.builds.requests import (
    BuildRequest,
    Failure,
    format_entry,
)
from roundhouse.errors import AwsError, BuildFailedError, NotReadyError
from roundhouse.report import Step
from roundhouse.session import Session

RUNNING = "RUNNING"
NEWEST = 20
"""Events of an engine's history that are asked for: a look at its job is nine."""
LISTED = 100
"""Training jobs on a page."""
VARIABLE = "ROUNDHOUSE_EXECUTION"
EVERY_SECONDS, LOCAL_EVERY_SECONDS = 5.0, 0.5
PATIENCE_SECONDS = 300.0
"""Without an answer of AWS, or throttled by it."""
NAMES_A_COMMAND = "Error while executing command"
"""What CodeBuild says of a build that left no reason of its own."""
LOG_FIELDS = ("DeepLink", "GroupName", "StreamName")
ENDED = ("FAILED", "FAULT", "STOPPED", "TIMED_OUT", "Failed", "Stopped")


@dataclass(frozen=True, kw_only=True)
class EngineState:
    """One engine's newest job, and once it has ended its record; None where it left none."""

    is_running: bool
    job: Job | None = None
    record: Mapping[str, str] | None = None


@dataclass(kw_only=True)
class Execution:
    """An execution as of the last look; `engines`: those that have begun, by engine key."""

    arn: str
    environment: EnvironmentSpec
    clients: Clients
    status: str = RUNNING
    cause: str = ""
    engines: dict[str, EngineState] = field(default_factory=dict)
    _keys: dict[str, str] = field(default_factory=dict)

    def look(self) -> None:
        """Bring everything up to date. Raises NotReadyError."""
        client = self.clients("stepfunctions")
        with calling(f"Following {self.arn}"):
            execution = client.describe_execution(executionArn=self.arn)
            for run in client.list_map_runs(executionArn=self.arn)["mapRuns"]:
                arn = run["mapRunArn"]
                for child in [*pages(client, "list_executions", "executions", mapRunArn=arn)]:
                    self._look_at(client, child["executionArn"])
            self.status, self.cause = execution["status"], str(execution.get("cause") or "")

    def stop(self, settle: Callable[[], object]) -> None:
        """Stop the execution, then its jobs, and after `settle` those that were being started."""
        client = self.clients("stepfunctions")
        with calling(f"Stopping {self.arn}"):
            if client.describe_execution(executionArn=self.arn)["status"] == RUNNING:
                client.stop_execution(executionArn=self.arn, cause="Stopped by whoever started it")
        self._stop_jobs()
        settle()
        self._stop_jobs()

    def _look_at(self, client: Client, child: str) -> None:
        if child in self._keys and not self.engines[self._keys[child]].is_running:
            return
        execution = client.describe_execution(executionArn=child)
        if child not in self._keys:
            self._keys[child] = json.loads(execution["input"])["engine"]["engineKey"]
        key = self._keys[child]
        if execution["status"] == RUNNING:
            history = client.get_execution_history(
                executionArn=child, reverseOrder=True, maxResults=NEWEST
            )
            self.engines[key] = EngineState(is_running=True, job=newest_job(history["events"]))
            return
        before, output = self.engines.get(key), execution.get("output")
        has_record = execution["status"] == "SUCCEEDED" and output
        self.engines[key] = EngineState(
            is_running=False,
            job=None if before is None else before.job,
            record=json.loads(output) if has_record else None,
        )

    def _stop_jobs(self) -> None:
        # The state machine marks the builds and jobs of an execution with this tag.
        tag = hashlib.sha256(self.arn.encode()).hexdigest()[:8]
        client, routes = self.clients("codebuild"), ("cpu", "gpu", "fleet", QUANTIZER)
        projects = [names.builder_project(self.environment, route) for route in routes]
        with calling("Looking for CodeBuild projects"):
            existing = client.batch_get_projects(names=projects)["projects"]
        for project in existing:
            codebuild.stop_all(client, project["name"], {"name": VARIABLE, "value": tag})
        sagemaker = self.clients("sagemaker")
        with calling("Looking for running training jobs"):
            found = pages(
                sagemaker,
                "list_training_jobs",
                "TrainingJobSummaries",
                NameContains=f"-{tag}-",
                StatusEquals="InProgress",
                PaginationConfig={"PageSize": LISTED},
            )
            jobs = [job["TrainingJobName"] for job in found]
        for job in jobs:
            with calling(f"Stopping training job {job}"):
                sagemaker.stop_training_job(TrainingJobName=job)


def start(clients: Clients, environment: EnvironmentSpec, document: Mapping[str, Any]) -> Execution:
    """Start an execution with this input. Raises NotReadyError."""
    from botocore.exceptions import ClientError

    name, region = names.build_machine(environment), environment.region
    arn = f"arn:{aws_partition(region)}:states:{region}:{environment.account}:stateMachine:{name}"
    with calling(f"Starting the builds in {name}"):
        try:
            answer = clients("stepfunctions").start_execution(
                stateMachineArn=arn, input=json.dumps(document)
            )
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") != "StateMachineDoesNotExist":
                raise
            command = f"`roundhouse deploy --env {environment.name}`"
            raise NotReadyError(
                f"{name}: is not there yet; {command} makes it, then builds and deploys what "
                "is missing."
            ) from error
        return Execution(arn=answer["executionArn"], environment=environment, clients=clients)


@dataclass(kw_only=True)
class BuildMonitor:
    """The engines of one execution by key, and their results; `sleep` waits between two looks."""

    session: Session
    requests: Mapping[str, BuildRequest]
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
        try:
            entry = self.requests[key].record(self.session)
        except BuildFailedError as error:
            self._fail(key, str(error), "none")
            return
        self._left.discard(key)
        self.built.append(entry)
        step = self._step(key)
        step.end(format_entry(entry, record.get("notReused", "")))
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


@dataclass(frozen=True, kw_only=True)
class Job:
    """One try at an engine: `state` in the service's words, `logs` as CodeBuild has them."""

    kind: str
    name: str
    state: str
    has_ended: bool
    logs: Mapping[str, Any]


def newest_job(events: Iterable[Mapping[str, Any]]) -> Job | None:
    """Return the newest job of an execution's history; `events`: the newest first."""
    outputs = (event.get("taskSucceededEventDetails", {}).get("output") for event in events)
    jobs = (_job(json.loads(output)) for output in outputs if output is not None)
    return next((job for job in jobs if job is not None), None)


def failure_reason(clients: Clients, job: Job | None, recorded: str) -> str:
    """Return why a job failed: the recorded reason, or where that only names a command, its log."""
    if job is None or not recorded.startswith(NAMES_A_COMMAND):
        return recorded
    return last_log_line(clients, job) or recorded


def last_log_line(clients: Clients, job: Job) -> str:
    """Return the last line of a job's log; empty when there is none."""
    if job.kind == "build":
        return codebuild.last_log_line(clients, {"logs": job.logs})
    return codebuild.last_line(codebuild.job_text(clients, job.name))


def progress(clients: Clients, job: Job | None) -> str:
    """Return where an engine is, in a few words: the last line of its job, or its job's state."""
    if job is None:
        return "starting"
    if job.has_ended:
        return "waits for capacity, then starts again"
    return last_log_line(clients, job) or job.state.lower()


def _job(output: Any) -> Job | None:
    if not isinstance(output, Mapping):
        return None
    builds = [output["Build"]] if "Build" in output else output.get("Builds")
    if builds:
        build, logs = builds[0], builds[0].get("Logs") or {}
        return Job(
            kind="build",
            name=str(build["Id"]),
            state=str(build.get("CurrentPhase", "submitted")),
            has_ended=build.get("BuildStatus") in ENDED,
            logs={name[0].lower() + name[1:]: logs[name] for name in LOG_FIELDS if name in logs},
        )
    if "TrainingJobArn" in output:
        return Job(
            kind="training-job",
            name=str(output["TrainingJobArn"]).rpartition("/")[2],
            state=str(output.get("SecondaryStatus", "Starting")),
            has_ended=output.get("TrainingJobStatus") in ENDED,
            logs={},
        )
    return None
