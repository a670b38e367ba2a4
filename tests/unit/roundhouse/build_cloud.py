"""S3, and a build machine with its builds and jobs, in memory.

Every look finds the engines one step further.
"""

from __future__ import annotations

import io
import json

from botocore.exceptions import EndpointConnectionError
from rich.console import Console

from onboarding.tree import read_tree
from roundhouse.paths import Paths
from roundhouse.processes import Outcome
from roundhouse.report import Report
from roundhouse.session import Session
from tests.unit.roundhouse.engines import entry_for
from tests.unit.roundhouse.memory_s3 import MemoryS3, refusal

ARN = "arn:aws:states:us-east-1:000000000000:execution:roundhouse-local-builds:1"


class Cloud(MemoryS3):
    """`tag` is the first eight digits of the SHA-256 of ARN, as the machine computes it.

    `reasons`: why a model's engine fails; `not_reused`: why a model's plan is
    compiled; `silent`: models whose executions end without a record;
    `jobs`: number of training jobs; `away`: looks, counted from 1, that are not answered, or
    are refused with the code `refusal`.
    """

    tag = "1cbbe019"
    unreadable = ()
    """Models whose record is of another form."""

    def __init__(self, deployments=()) -> None:
        self.targets = {
            target.engine_key: (deployment, target)
            for deployment in deployments
            for target in deployment.targets
        }
        super().__init__()
        self.machine_there = True
        self.given, self.looks, self.reasons, self.silent, self.unrecorded = [], 0, {}, (), ()
        self.jobs, self.away, self.refusal, self.not_reused = 1, (), None, {}
        self.interrupt_at, self.status, self.cause, self.stopped = None, None, "", []

    def __call__(self, service):
        return self

    def start_execution(self, stateMachineArn, input):
        if not self.machine_there:
            raise refusal("StateMachineDoesNotExist", "StartExecution")
        self.machine, self.looks, self.status = stateMachineArn, 0, None
        self.given.append(json.loads(input))
        return {"executionArn": ARN}

    @property
    def engines(self):
        return [engine for wave in self.given[-1]["waves"] for engine in wave]

    def describe_execution(self, executionArn):
        if executionArn == ARN:
            self.looks += 1
            if self.looks == self.interrupt_at:
                raise KeyboardInterrupt
            if self.looks in self.away and self.refusal is not None:
                raise refusal(self.refusal, "DescribeExecution")
            if self.looks in self.away:
                raise EndpointConnectionError(endpoint_url="https://states.example")
            ended = "FAILED" if self.reasons or self.silent else "SUCCEEDED"
            is_running = self.looks < 3 or self.interrupt_at
            ended = self.status or ("RUNNING" if is_running else ended)
            return {"status": ended, "cause": self.cause}
        engine = self.engines[int(executionArn)]
        execution = {"input": json.dumps({"engine": engine})}
        if self.looks < 2:
            return {**execution, "status": "RUNNING"}
        if engine["model"] in self.silent:
            return {**execution, "status": "FAILED"}
        return {**execution, "status": "SUCCEEDED", "output": json.dumps(self._record(engine))}

    def _record(self, engine):
        record = {"engineKey": engine["engineKey"], "model": engine["model"]}
        if engine["model"] in self.reasons:
            reason = self.reasons[engine["model"]]
            return {**record, "status": "failed", "reason": reason, "log": "file:///a%20log.txt"}
        deployment, target = self.targets[engine["engineKey"]]
        if engine["model"] not in self.unrecorded:
            entry = entry_for(deployment, target)
            path = f"engines/{target.engine_key}/lock-entry.json"
            content = entry.model_dump_json().encode()
            self.objects[path] = b"{}" if engine["model"] in self.unreadable else content
            self.objects[entry.archive.path] = b"archive"
        not_reused = self.not_reused.get(engine["model"], "")
        return {**record, "status": "built", "notReused": not_reused}

    def list_map_runs(self, executionArn):
        runs = range(len(self.given[-1]["waves"]))
        return {"mapRuns": [{"mapRunArn": str(number)} for number in runs]}

    def list_executions(self, mapRunArn):
        waves = self.given[-1]["waves"]
        first = sum(map(len, waves[: int(mapRunArn)]))
        for number in range(len(waves[int(mapRunArn)])):
            yield {"executions": [{"executionArn": str(first + number)}]}

    def get_execution_history(self, executionArn, reverseOrder, maxResults):
        build = {"Id": f"b:{executionArn}", "BuildStatus": "IN_PROGRESS", "CurrentPhase": "BUILD"}
        output = json.dumps({"Build": build})
        return {"events": [{"taskSucceededEventDetails": {"output": output}}]}

    def stop_execution(self, executionArn, cause):
        self.stopped.append(executionArn)
        self.status = "ABORTED"

    def batch_get_projects(self, names):
        return {"projects": [{"name": name} for name in names if name.endswith(("cpu", "gpu"))]}

    def list_builds_for_project(self, projectName, sortOrder):
        return {"ids": [projectName]}

    def batch_get_builds(self, ids):
        running, ended = "IN_PROGRESS", "SUCCEEDED"
        builds = ("mine", running, self.tag), ("over", ended, self.tag), ("another", running, "f3")

        def build(name, status, tag):
            variables = [{"name": "ROUNDHOUSE_EXECUTION", "value": tag, "type": "PLAINTEXT"}]
            environment = {"environmentVariables": variables}
            return {"id": f"{ids[0]}:{name}", "buildStatus": status, "environment": environment}

        return {"builds": [build(*row) for row in builds]}

    def stop_build(self, id):
        self.stopped.append(id)

    def list_training_jobs(self, NameContains, StatusEquals, PaginationConfig):
        assert (NameContains, StatusEquals) == (f"-{self.tag}-", "InProgress")
        assert 1 <= PaginationConfig["PageSize"] <= 100
        for number in range(self.jobs):
            name = f"roundhouse-local--key{NameContains}{number}"
            yield {"TrainingJobSummaries": [{"TrainingJobName": name}]}

    def stop_training_job(self, TrainingJobName):
        self.stopped.append(TrainingJobName)


def run_git(command, on_line=None):
    """Answer as git does where every file is committed."""
    return Outcome(code=0, output="abc123\n" if "rev-parse" in command.argv else "")


def session_of(tree, cloud, environment="local", run=run_git, code=None, width=200):
    """A session of an account in memory; `code` None: the tree's own."""
    return Session(
        paths=Paths(code=code or tree, tree=tree, build=tree / "build"),
        environment=read_tree(tree).environments[environment],
        variables={},
        clients=cloud,
        run=run,
        report=Report(console=Console(file=io.StringIO(), width=width)),
    )
