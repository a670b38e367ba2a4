"""One execution of an environment's build machine: started, looked at, stopped."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from onboarding import names
from onboarding.environment_spec import EnvironmentSpec
from onboarding.platform import aws_partition
from onboarding.text_generation.quantizer_route import QUANTIZER
from roundhouse.aws.clients import Client, Clients, calling
from roundhouse.deploy.builds import codebuild
from roundhouse.deploy.builds.job import Job, newest_job
from roundhouse.errors import NotReadyError

RUNNING = "RUNNING"
NEWEST = 20
"""Events of an engine's history that are asked for: a look at its job is nine."""
LISTED = 100
"""Training jobs on a page."""
VARIABLE = "ROUNDHOUSE_EXECUTION"


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
                pages = client.get_paginator("list_executions").paginate(mapRunArn=run["mapRunArn"])
                for child in [child for page in pages for child in page["executions"]]:
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
            pages = sagemaker.get_paginator("list_training_jobs").paginate(
                NameContains=f"-{tag}-",
                StatusEquals="InProgress",
                PaginationConfig={"PageSize": LISTED},
            )
            jobs = [
                job["TrainingJobName"] for page in pages for job in page["TrainingJobSummaries"]
            ]
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
