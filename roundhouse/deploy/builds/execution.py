"""One execution of an environment's build machine: started, looked at, stopped."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from onboarding import names
from onboarding.environment_spec import EnvironmentSpec
from onboarding.platform import aws_partition
from roundhouse.aws.clients import Client, Clients, calling
from roundhouse.deploy.builds import codebuild
from roundhouse.deploy.builds.job import Job, newest_job, stop_training_jobs
from roundhouse.errors import NotReadyError

RUNNING = "RUNNING"
NEWEST = 20
"""Events of an engine's history that are asked for: a look at its job is nine."""
VARIABLE = "ROUNDHOUSE_EXECUTION"


@dataclass(frozen=True, kw_only=True)
class EngineState:
    """What an execution knows of an engine.

    Its newest job, and when it has ended, its record, or None where it left none.
    """

    is_running: bool
    job: Job | None = None
    record: Mapping[str, str] | None = None


@dataclass(kw_only=True)
class Execution:
    """An execution that runs or has run.

    `engines` are those that have begun, by engine key, as of the last look.
    """

    arn: str
    environment: EnvironmentSpec
    clients: Clients
    status: str = RUNNING
    cause: str = ""
    engines: dict[str, EngineState] = field(default_factory=dict)
    _keys: dict[str, str] = field(default_factory=dict)

    def look(self) -> None:
        """Bring everything up to date. Raises NotReadyError."""
        states = self.clients("stepfunctions")
        with calling(f"Following {self.arn}"):
            found = states.describe_execution(executionArn=self.arn)
            for child in self._children(states):
                self._look_at(states, child["executionArn"])
            self.status, self.cause = found["status"], str(found.get("cause") or "")

    def stop(self, settle: Callable[[], object] = lambda: time.sleep(1.0)) -> None:
        """Stop the execution, then what it has started.

        Twice: what was being started at that moment is there after `settle`.
        """
        with calling(f"Stopping {self.arn}"):
            if (
                self.clients("stepfunctions").describe_execution(executionArn=self.arn)["status"]
                == RUNNING
            ):
                self.clients("stepfunctions").stop_execution(
                    executionArn=self.arn, cause="Stopped by whoever started it"
                )
        self._stop_jobs()
        settle()
        self._stop_jobs()

    @property
    def tag(self) -> str:
        """What the machine marks this execution's builds and jobs with."""
        return hashlib.sha256(self.arn.encode()).hexdigest()[:8]

    def _children(self, states: Client) -> Iterator[Mapping[str, Any]]:
        for run in states.list_map_runs(executionArn=self.arn)["mapRuns"]:
            page: dict[str, str] = {}
            while True:
                answer = states.list_executions(mapRunArn=run["mapRunArn"], **page)
                yield from answer["executions"]
                if not answer.get("nextToken"):
                    break
                page = {"nextToken": answer["nextToken"]}

    def _look_at(self, states: Client, child: str) -> None:
        if child in self._keys and not self.engines[self._keys[child]].is_running:
            return
        found = states.describe_execution(executionArn=child)
        if child not in self._keys:
            self._keys[child] = json.loads(found["input"])["engine"]["engineKey"]
        key = self._keys[child]
        self.engines[key] = _engine(states, found, self.engines.get(key))

    def _stop_jobs(self) -> None:
        codebuild_client = self.clients("codebuild")
        with calling("Looking for CodeBuild projects"):
            names_there = [
                project["name"]
                for project in codebuild_client.batch_get_projects(names=self._projects())[
                    "projects"
                ]
            ]
        for name in names_there:
            codebuild.stop_all(codebuild_client, name, (VARIABLE, self.tag))
        stop_training_jobs(self.clients("sagemaker"), f"-{self.tag}-")

    def _projects(self) -> list[str]:
        return [names.builder_project(self.environment, route) for route in ("cpu", "gpu", "fleet")]


def start(clients: Clients, environment: EnvironmentSpec, given: Mapping[str, Any]) -> Execution:
    """Start an execution. Raises NotReadyError."""
    from botocore.exceptions import ClientError

    name = names.build_machine(environment)
    place = (
        f"arn:{aws_partition(environment.region)}:states:{environment.region}:{environment.account}"
    )
    with calling(f"Starting the builds in {name}"):
        try:
            answer = clients("stepfunctions").start_execution(
                stateMachineArn=f"{place}:stateMachine:{name}", input=json.dumps(given)
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


def _engine(
    states: Client, execution: Mapping[str, Any], before: EngineState | None
) -> EngineState:
    if execution["status"] != RUNNING:
        output = execution.get("output")
        record = json.loads(output) if execution["status"] == "SUCCEEDED" and output else None
        return EngineState(
            is_running=False, job=None if before is None else before.job, record=record
        )
    events = states.get_execution_history(
        executionArn=execution["executionArn"], reverseOrder=True, maxResults=NEWEST
    )["events"]
    return EngineState(is_running=True, job=newest_job(events))
