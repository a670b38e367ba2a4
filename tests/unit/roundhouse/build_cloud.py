"""S3, and a build machine with its builds and jobs, in memory.

Every look finds the engines one step further.
"""

from __future__ import annotations

import io
import json

from botocore.exceptions import ClientError, EndpointConnectionError
from rich.console import Console

from onboarding.tree import read_tree
from roundhouse.paths import Paths
from roundhouse.processes import Outcome
from roundhouse.report import Report
from roundhouse.session import Session
from tests.unit.roundhouse.engines import entry_for

ARN = "arn:aws:states:us-east-1:000000000000:execution:roundhouse-local-builds:1"


def refusal(code, operation="Any"):
    return ClientError({"Error": {"Code": code, "Message": "Not Found"}}, operation)


class Cloud:
    """`tag` is the first eight digits of the SHA-256 of ARN, as the machine computes it.

    `reasons` has why a model's engine fails, `silent` the models whose executions end without a
    record; `jobs` training jobs run,
    and the looks of `away`, counted from 1, are not answered.
    """

    tag = "1cbbe019"

    def __init__(self, deployments=()) -> None:
        self.targets = {
            target.engine_key: (each, target) for each in deployments for target in each.targets
        }
        self.objects, self.bucket_there, self.machine_there = {}, True, True
        self.given, self.looks, self.reasons, self.silent, self.unrecorded = [], 0, {}, (), ()
        self.jobs, self.away = 1, ()
        self.interrupt_at, self.status, self.cause, self.stopped = None, None, "", []

    def __call__(self, service):
        return self

    def _get(self, key):
        if key not in self.objects:
            raise refusal("404", "HeadObject")
        return self.objects[key]

    def head_bucket(self, Bucket):
        if not self.bucket_there:
            raise refusal("404", "HeadBucket")
        return {}

    def head_object(self, Bucket, Key):
        self._get(Key)
        return {}

    def get_object(self, Bucket, Key):
        return {"Body": io.BytesIO(self._get(Key))}

    def put_object(self, Bucket, Key, Body):
        self.objects[Key] = Body

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
            if self.looks in self.away:
                raise EndpointConnectionError(endpoint_url="https://states.example")
            failed = self.reasons or self.silent
            ended = self.status or (
                "RUNNING"
                if self.looks < 3 or self.interrupt_at
                else "FAILED"
                if failed
                else "SUCCEEDED"
            )
            return {"status": ended, "cause": self.cause}
        engine = self.engines[int(executionArn)]
        found = {
            "executionArn": executionArn,
            "input": json.dumps({"engine": engine}),
            "status": "RUNNING",
        }
        if self.looks < 2:
            return found
        if engine["model"] in self.silent:
            return {**found, "status": "FAILED"}
        return {**found, "status": "SUCCEEDED", "output": json.dumps(self._record(engine))}

    def _record(self, engine):
        record = {"engineKey": engine["engineKey"], "model": engine["model"]}
        if engine["model"] in self.reasons:
            log = "file:///a%20log.txt"
            return {
                **record,
                "status": "failed",
                "reason": self.reasons[engine["model"]],
                "log": log,
            }
        deployment, target = self.targets[engine["engineKey"]]
        if engine["model"] not in self.unrecorded:
            entry = entry_for(deployment, target)
            self.objects[f"engines/{target.engine_key}/lock-entry.json"] = (
                entry.model_dump_json().encode()
            )
            self.objects[entry.archive.path] = b"archive"
        return {**record, "status": "built"}

    def list_map_runs(self, executionArn):
        return {
            "mapRuns": [
                {"mapRunArn": str(place)} for place, _ in enumerate(self.given[-1]["waves"])
            ]
        }

    def list_executions(self, mapRunArn, nextToken="0"):
        """One a page."""
        waves, at = self.given[-1]["waves"], int(nextToken)
        first = sum(len(wave) for wave in waves[: int(mapRunArn)])
        more = {"nextToken": str(at + 1)} if at + 1 < len(waves[int(mapRunArn)]) else {}
        return {"executions": [{"executionArn": str(first + at)}], **more}

    def get_execution_history(self, executionArn, reverseOrder, maxResults):
        build = {"Id": f"b:{executionArn}", "BuildStatus": "IN_PROGRESS", "CurrentPhase": "BUILD"}
        return {
            "events": [
                {
                    "type": "TaskSucceeded",
                    "taskSucceededEventDetails": {"output": json.dumps({"Build": build})},
                }
            ]
        }

    def stop_execution(self, executionArn, cause):
        self.stopped.append(executionArn)
        self.status = "ABORTED"

    def batch_get_projects(self, names):
        return {"projects": [{"name": name} for name in names if not name.endswith("fleet")]}

    def list_builds_for_project(self, projectName, sortOrder):
        return {"ids": [projectName]}

    def batch_get_builds(self, ids):
        builds = {
            "mine": ("IN_PROGRESS", self.tag),
            "over": ("SUCCEEDED", self.tag),
            "another": ("IN_PROGRESS", "f3b2c1d0"),
        }
        return {
            "builds": [
                {
                    "id": f"{ids[0]}:{name}",
                    "buildStatus": status,
                    "environment": {
                        "environmentVariables": [{"name": "ROUNDHOUSE_EXECUTION", "value": tag}]
                    },
                }
                for name, (status, tag) in builds.items()
            ]
        }

    def stop_build(self, id):
        self.stopped.append(id)

    def list_training_jobs(self, NameContains, StatusEquals, MaxResults, NextToken="0"):
        """One a page."""
        assert (NameContains, StatusEquals) == (
            f"-{self.tag}-",
            "InProgress",
        ) and 1 <= MaxResults <= 100
        more = {"NextToken": str(int(NextToken) + 1)} if int(NextToken) + 1 < self.jobs else {}
        return {
            "TrainingJobSummaries": [
                {"TrainingJobName": f"roundhouse-local--key{NameContains}{NextToken}"}
            ],
            **more,
        }

    def stop_training_job(self, TrainingJobName):
        self.stopped.append(TrainingJobName)


def session_of(tree, cloud, environment="local"):
    return Session(
        paths=Paths(code=tree, tree=tree, build=tree / "build"),
        environment=read_tree(tree).environments[environment],
        variables={},
        clients=cloud,
        run=lambda command, on_line=None: Outcome(
            code=0, output="abc123\n" if "rev-parse" in command.argv else ""
        ),
        report=Report(console=Console(file=io.StringIO(), width=200)),
    )
